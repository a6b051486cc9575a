"""The system-call filter of the jail, written out as classic BPF for x86_64 and aarch64.

Everything that reaches beyond one process tree, or that has a history of kernel bugs and no use
for a short program, is refused; socketpair stays, because asyncio needs it.
"""

from __future__ import annotations

import platform
import struct

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, EACCES, ENOSYS = 1, 13, 38
NAMESPACE_FLAGS = 0x7E020000  # every CLONE_NEW* that plain clone knows

# name: (x86_64, aarch64); None where the architecture has no such call
FATAL: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
}
# Libraries try these as a matter of course and can live with a no.
REFUSED: dict[str, tuple[int | None, int | None, int]] = {
    "socket": (41, 198, EACCES),
    "connect": (42, 203, EACCES),
    "bind": (49, 200, EACCES),
    "listen": (50, 201, EACCES),
    "accept": (43, 202, EACCES),
    "accept4": (288, 242, EACCES),
    "shmget": (29, 194, EACCES),
    "shmat": (30, 196, EACCES),
    "msgget": (68, 186, EACCES),
    "semget": (64, 190, EACCES),
    "mq_open": (240, 180, EACCES),
    "clone3": (435, 435, ENOSYS),  # its flags lie in memory, where no filter can look
    "pidfd_open": (434, 434, ENOSYS),
    "move_pages": (279, 239, EPERM),
    "migrate_pages": (256, 238, EPERM),
    "mbind": (237, 235, EPERM),
    "set_mempolicy": (238, 237, EPERM),
    # A program that puts itself last would wait for a processor, and that wait is not counted.
    "setpriority": (141, 140, EPERM),
    "sched_setparam": (142, 118, EPERM),
    "sched_setscheduler": (144, 119, EPERM),
    "sched_setaffinity": (203, 122, EPERM),
    "sched_setattr": (314, 274, EPERM),
    "personality": (135, 92, EPERM),
    "inotify_init1": (294, 26, EACCES),
    "inotify_init": (253, None, EACCES),
    "landlock_create_ruleset": (444, 444, ENOSYS),
}
CLONE = (56, 220)
IOCTL = (16, 29)
TIOCSTI, TIOCLINUX = 0x5412, 0x541C


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value & 0xFFFFFFFF)


LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCH, ARG0, ARG1 = 0, 4, 16, 24


LATE = ("unshare", "setns", "mount", "pidfd_open")


def programs(machine: str | None = None) -> tuple[bytes, bytes]:
    """Two filters, as arrays of sock_filter: the zygote's, which every fork inherits, and the
    small one each fork adds, of calls the zygote itself needs. Installing a filter costs time by
    its length, and a fork has little."""
    machine = machine or platform.machine()
    if machine not in AUDIT_ARCH:
        raise OSError(
            f"no system-call filter is written for {machine}; x86_64 and aarch64 have one"
        )
    column = 0 if machine == "x86_64" else 1
    early, late = _head(machine), _head(machine)
    for name, row in FATAL.items():
        (late if name in LATE else early).extend(_answer(row[column], KILL))
    for name, refused in REFUSED.items():
        steps = _answer(refused[column], ERRNO | refused[2])
        (late if name in LATE else early).extend(steps)
    early += [
        _step(EQUAL, CLONE[column], 0, 4),
        _step(LOAD, ARG0),
        _step(ANY_BIT, NAMESPACE_FLAGS, 0, 1),
        _step(RETURN, KILL),
        _step(RETURN, ALLOW),
        _step(EQUAL, IOCTL[column], 0, 5),
        _step(LOAD, ARG1),
        _step(EQUAL, TIOCSTI, 1, 0),
        _step(EQUAL, TIOCLINUX, 0, 1),
        _step(RETURN, ERRNO | EPERM),
        _step(RETURN, ALLOW),
    ]
    end = _step(RETURN, ALLOW)
    return b"".join([*early, end]), b"".join([*late, end])


def _head(machine: str) -> list[bytes]:
    steps = [_step(LOAD, ARCH), _step(EQUAL, AUDIT_ARCH[machine], 1, 0), _step(RETURN, KILL)]
    steps.append(_step(LOAD, NUMBER))
    if machine == "x86_64":  # the x32 table would walk round every number below
        steps += [_step(AT_LEAST, 0x40000000, 0, 1), _step(RETURN, KILL)]
    return steps


def _answer(number: int | None, answer: int) -> list[bytes]:
    return [] if number is None else [_step(EQUAL, number, 0, 1), _step(RETURN, answer)]
