"""What is chosen for machines that are described, not owned; and that looking never hangs."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest
import torch
from lives import train

from sparring.core.errors import ConfigError
from sparring.run import machine as machines
from sparring.run.config import Config
from sparring.run.machine import (
    Gpu,
    Machine,
    choose_precision,
    needs_network,
    release_free_memory,
    settle,
)

V100 = Machine((Gpu("Tesla V100-SXM2-16GB", (7, 0), 16.9, False),), 40, 512)
A100 = Machine((Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 85.0, True),) * 8, 96, 1024)
A100_40 = Machine((Gpu("NVIDIA A100-SXM4-40GB", (8, 0), 42.3, True),), 12, 85)
H100 = Machine((Gpu("NVIDIA H100 80GB HBM3", (9, 0), 85.0, True),) * 8, 192, 2048)
H200 = Machine((Gpu("NVIDIA H200", (9, 0), 150.0, True),), 16, 128)
BROKEN = Machine((Gpu("NVIDIA A100", (8, 0), 85.0, False),), 8, 64)
OLD = Machine((Gpu("Tesla P100", (6, 0), 17.0, False),), 8, 64)
CPU = Machine((), 2, 8)


def plain(**keys: object) -> Config:
    return Config.model_validate({"games": {"kuhn": {}}, **keys})


@pytest.mark.parametrize(
    ("machine", "device", "dtype", "replies", "tokens"),
    [
        (V100, "cuda", "float16", 128, 4096),
        (A100_40, "cuda", "bfloat16", 512, 16384),
        (A100, "cuda", "bfloat16", 1024, 32768),
        (H100, "cuda", "bfloat16", 1024, 32768),
        (H200, "cuda", "bfloat16", 1024, 65536),
        (BROKEN, "cuda", "float16", 1024, 32768),
        (OLD, "cuda", "float32", 128, 4096),
        (CPU, "cpu", "float32", 512, 2048),
    ],
    ids=["V100", "A100-40", "A100-80", "H100", "H200", "broken-bf16", "P100", "CPU"],
)
def test_what_suits_each_machine(
    machine: Machine, device: str, dtype: str, replies: int, tokens: int
) -> None:
    config, choices = settle(plain(), machine)
    found = {c.key: c.value for c in choices}
    assert found["engine.device"] == device and found["engine.dtype"] == dtype
    assert config.engine.max_batch == found["engine.max_batch"] == replies
    assert config.learn.tokens_per_batch == found["learn.tokens_per_batch"] == tokens
    assert all(c.why for c in choices)  # every choice comes with its reason


def test_whole_weights_are_not_learned_in_float16() -> None:
    dtype = choose_precision(V100, weights="full")[1]
    assert dtype.value == "float32" and "gradients" in dtype.why
    assert choose_precision(V100, weights="lora")[1].value == "float16"
    assert choose_precision(A100, weights="full")[1].value == "bfloat16"


def test_what_a_person_says_stands_above_every_choice() -> None:
    asked = plain(
        engine={"device": "cpu", "dtype": "bfloat16", "max_batch": 7},
        learn={"tokens_per_batch": 99},
    )
    config, choices = settle(asked, H200)
    assert [c.value for c in choices] == ["cpu", "bfloat16", 7, 99]
    assert {c.why for c in choices} == {"as asked"}
    assert config == asked


def test_a_resumed_run_keeps_what_was_chosen_when_it_began() -> None:
    began, _ = settle(plain(), V100)
    resumed, choices = settle(plain(), H200, before=began)
    assert resumed == began and resumed.engine.max_batch == 128
    assert "as when the run began" in {c.why for c in choices}


def test_one_of_two_gpus_plays_while_the_other_learns_where_that_can_be_had() -> None:
    two = replace(H200, gpus=H200.gpus * 2)
    config, choices = settle(plain(), two)
    assert config.collect.ahead == 1
    assert "collect.ahead 1: one GPU plays while another learns" in map(str, choices)
    assert settle(plain(), H200)[0].collect.ahead == 0
    assert settle(plain(), two, before=settle(plain(), H200)[0])[0].collect.ahead == 0
    assert settle(plain(), H200, before=config)[0].collect.ahead == 1  # as when it began
    for asked in ({"engine": {"device": "cpu"}}, {"collect": {"ahead": 0}}):
        assert settle(plain(**asked), two)[0].collect.ahead == 0
    for cannot in ({"learn": {"objective": "likelihood"}}, {"bases": {"first": "nano"}}):
        assert settle(plain(**cannot), two)[0].collect.ahead == 0


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine\.device is .cuda. .*no GPU"):
        machines.check_device("cuda", CPU, "engine.device")
    machines.check_device("cuda", H200)


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has not said that it is offline, and has no proxy."""
    offline = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    proxies = (f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "ALL", "NO"))
    for name in (*offline, *proxies):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_variable_keeps_everything_offline(
    monkeypatch: pytest.MonkeyPatch, online: None, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(httpx, "head", lambda *a, **k: pytest.fail("it asked the network"))
    found = machines.detect(look_for_network=True)
    assert found.offline_by == variable
    _, choices = settle(plain(), found)
    assert variable in choices[-1].why and choices[-1].key == "offline"


def test_offline_is_told_to_the_libraries_but_not_against_a_persons_word() -> None:
    environment = {"WANDB_MODE": "online"}
    machines.go_offline(environment)
    assert environment == {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "WANDB_MODE": "online",
    }


def test_a_network_that_swallows_everything_costs_seconds_not_forever(
    monkeypatch: pytest.MonkeyPatch, online: None
) -> None:
    monkeypatch.setattr(machines, "REACH_S", 0.2)
    given_up = threading.Event()

    def swallow(*args: object, **kwargs: object) -> None:
        given_up.wait(30)
        raise OSError("at last")

    monkeypatch.setattr(httpx, "head", swallow)
    started = time.monotonic()
    assert machines.unreachable() == "no answer within 0.2 s"
    assert time.monotonic() - started < 5
    given_up.set()

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr(httpx, "head", refuse)
    monkeypatch.setattr(machines, "REACH_S", 30)
    assert machines.unreachable() == "no route"
    assert machines.detect(look_for_network=True).network is False


def test_a_proxy_stands_for_the_network(monkeypatch: pytest.MonkeyPatch, online: None) -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def serve() -> None:
            connection, _ = proxy.accept()
            asked.append(connection.recv(4096))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
        monkeypatch.setattr(machines, "REACH_S", 30)
        assert machines.unreachable() == ""
        thread.join()
    assert asked[0].startswith(b"HEAD http://hub.example/ ")


def test_the_network_is_asked_for_only_where_something_needs_it(tmp_path: Path) -> None:
    assert not needs_network(plain(), {})
    assert needs_network(plain(policy="some/model"), {})
    assert not needs_network(plain(policy=str(tmp_path)), {})
    assert needs_network(plain(), {"WANDB_API_KEY": "k"})
    assert not needs_network(plain(tracking={"wandb": "never"}), {"WANDB_API_KEY": "k"})


def test_this_machine_is_described() -> None:
    found = machines.detect()
    assert 1 <= found.cores <= (os.cpu_count() or 1) and found.memory_gb > 0.5
    assert f"{found.cores} cores" in found.describe()
    assert "8 × NVIDIA H100 80GB HBM3 (85 GB)" in H100.describe()


def test_train_says_what_it_chose_and_why(tmp_path: Path) -> None:
    life = train("kuhn", tmp_path / "run", "iterations=1", "engine.dtype=auto")
    assert life.code == 0, life.err
    assert "machine: " in life.out and "HF_HUB_OFFLINE is set" in life.out
    assert "engine.dtype float32: on a CPU" in life.out
    assert "learn.tokens_per_batch 2048: on a CPU" in life.out
    assert "max_batch" not in life.out  # the recipe says that
    if not machines.detect().gpus:
        refused = train("kuhn", tmp_path / "other", "engine.device=cuda")
        assert refused.code == 2 and "no GPU" in refused.err
        assert not (tmp_path / "other").exists()


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc"
)
def test_memory_that_was_freed_between_blocks_in_use_goes_back_to_the_system() -> None:
    blocks = [torch.ones(16 * 1024) for _ in range(1600)]  # 100 MiB, each too small for a mapping
    kept = blocks[::16]
    full = psutil.Process().memory_info().rss
    del blocks
    release_free_memory()
    assert full - psutil.Process().memory_info().rss > 50 << 20
    assert all(float(block.sum()) == 16 * 1024 for block in kept)
