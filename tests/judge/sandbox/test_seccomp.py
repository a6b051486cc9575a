"""The filters say what they should, on both architectures, worked out step by step here."""

from __future__ import annotations

import struct

import pytest

from sparring.judge.sandbox import seccomp

PLAIN = {
    "x86_64": {"read": 0, "write": 1, "execve": 59, "socketpair": 53, "futex": 202},
    "aarch64": {"read": 63, "write": 64, "execve": 221, "socketpair": 199, "futex": 98},
}


def ruling(program: bytes, arch: int, number: int, args: tuple[int, ...] = ()) -> int:
    data = struct.pack("=IIQ6Q", number, arch, 0, *(args + (0,) * 6)[:6])
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    loaded, at = 0, 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x20:
            loaded = struct.unpack_from("=I", data, value)[0]
        elif code == 0x06:
            return value
        else:
            test = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            at += yes if test else no


def both(machine: str, number: int, *args: int) -> int:
    arch = seccomp.AUDIT_ARCH[machine]
    rulings = [ruling(p, arch, number, args) for p in seccomp.programs(machine)]
    return next((r for r in rulings if r != seccomp.ALLOW), seccomp.ALLOW)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_forbidden_calls_kill_and_the_rest_is_allowed(machine: str) -> None:
    column = list(seccomp.AUDIT_ARCH).index(machine)
    for name, row in seccomp.FATAL.items():
        if row[column] is not None:
            assert both(machine, row[column]) == seccomp.KILL, name
    for name, refused in seccomp.REFUSED.items():
        if refused[column] is not None:
            assert both(machine, refused[column]) == seccomp.ERRNO | refused[2], name
    for name, number in PLAIN[machine].items():
        assert both(machine, number) == seccomp.ALLOW, name


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_clone_is_for_threads_and_processes_only(machine: str) -> None:
    clone = seccomp.CLONE[list(seccomp.AUDIT_ARCH).index(machine)]
    assert both(machine, clone, 17) == seccomp.ALLOW
    assert both(machine, clone, 0x3D0F00) == seccomp.ALLOW  # as pthread_create does
    for flag in (0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x08000000, 0x04000000):
        assert both(machine, clone, flag | 17) == seccomp.KILL


def test_other_tables_and_terminals_are_refused() -> None:
    assert both("x86_64", 0x40000000 + 1) == seccomp.KILL
    for program in seccomp.programs("x86_64"):
        assert ruling(program, 0x40000003, 11) == seccomp.KILL  # the 32-bit table
    assert both("x86_64", seccomp.IOCTL[0], 0, seccomp.TIOCSTI) == seccomp.ERRNO | 1
    assert both("x86_64", seccomp.IOCTL[0], 0, 0x5401) == seccomp.ALLOW


def test_the_zygote_may_still_make_namespaces() -> None:
    early, _ = seccomp.programs("x86_64")
    for name in ("unshare", "setns", "mount"):
        number = seccomp.FATAL[name][0]
        assert number is not None
        assert ruling(early, seccomp.AUDIT_ARCH["x86_64"], number) == seccomp.ALLOW


def test_unknown_machines_are_named() -> None:
    with pytest.raises(OSError, match="riscv64"):
        seccomp.programs("riscv64")
