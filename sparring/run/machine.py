"""Knows the machine a run is on and chooses what suits it: precision, batches, offline or not.
Choosing is pure, from a description; looking is apart, so that machines nobody has here can be
described in tests. Whatever a recipe or a person says stands above any choice."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.run.config import Config
from sparring.run.rundir import RunDir
from sparring.run.sections import why_not_ahead

REACH_S = 2.5  # seconds that the hub has to answer at all, in any way
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_AMPERE = (8, 0)  # the first CUDA capability with bf16 in hardware; older ones only imitate it
_TURING_AND_VOLTA = (7, 0)  # the first with fast float16
# GPU memory in GB, at least -> replies at once (each holds its key-value cache), tokens per pass
_ROOM = ((120, 1024, 65536), (60, 1024, 32768), (30, 512, 16384), (0, 128, 4096))
_KEPT_BYTES = 64 << 20  # of freed memory that need not go back to the system
_TEN = [(f"figure_{n}", ctypes.c_size_t) for n in range(10)]
_CPU_ROOM = (512, 2048)  # SmolLM2 keeps 1.5 MB of a token for its backward pass


@dataclass(frozen=True)
class Gpu:
    name: str
    capability: tuple[int, int]
    memory_gb: float
    bf16: bool  # whether a product in bf16 was tried and came out right


@dataclass(frozen=True)
class Machine:
    gpus: tuple[Gpu, ...] = ()
    cores: int = 1
    memory_gb: float = 0.0
    slurm_job: str = ""
    network: bool | None = None  # None: not looked up
    offline_by: str = ""  # the variable that says to stay offline

    def describe(self) -> str:
        parts = [f"{self.cores} cores, {self.memory_gb:.0f} GB"]
        if self.gpus:
            parts.insert(
                0, f"{len(self.gpus)} × {self.gpus[0].name} ({self.gpus[0].memory_gb:.0f} GB)"
            )
        if self.slurm_job:
            parts.append(f"Slurm job {self.slurm_job}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Choice:
    key: str
    value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.key} {self.value}: {self.why}"


def choose_precision(
    machine: Machine, device: str = "auto", dtype: str = "auto", weights: str = "lora"
) -> tuple[Choice, Choice]:
    """The device and the dtype; `auto` is the fastest that works."""
    where = Choice("engine.device", device, "as asked")
    if device == "auto":
        device = "cuda" if machine.gpus else "cpu"
        where = Choice("engine.device", device, "there is a GPU" if machine.gpus else "no GPU")
    value, why = (dtype, "as asked") if dtype != "auto" else _precision(machine, device, weights)
    return where, Choice("engine.dtype", value, why)


def _precision(machine: Machine, device: str, weights: str) -> tuple[str, str]:
    if not device.startswith("cuda") or not machine.gpus:
        return "float32", "on a CPU it also keeps sampled and learned logprobs equal"
    gpu = machine.gpus[0]
    if gpu.capability >= _AMPERE and gpu.bf16:
        return "bfloat16", f"{gpu.name} has it, and a product in it came out right"
    lacks = (
        f"{gpu.name} has no bf16" if gpu.capability < _AMPERE else "bf16 did not work when tried"
    )
    if gpu.capability < _TURING_AND_VOLTA:
        return "float32", f"{lacks} and no fast float16"
    if weights == "full":
        return "float32", f"{lacks}, and in float16 small gradients of whole weights are lost"
    return "float16", f"{lacks}; adapters and their gradients stay float32"


def choose_room(machine: Machine, device: str) -> tuple[Choice, Choice]:
    """How many replies are drawn at once, and how many tokens are learned from at once."""
    if device.startswith("cuda") and machine.gpus:
        memory = min(gpu.memory_gb for gpu in machine.gpus)
        replies, tokens = next((r, t) for least, r, t in _ROOM if memory >= least)
        why = f"{memory:.0f} GB of GPU memory"
    else:
        (replies, tokens), why = _CPU_ROOM, "on a CPU"
    return (
        Choice("engine.max_batch", replies, why),
        Choice("learn.tokens_per_batch", tokens, why),
    )


def choose_ahead(machine: Machine, device: str, config: Config) -> Choice:
    """Whether games are played while others are learned from."""
    if not device.startswith("cuda") or len(machine.gpus) < 2:
        return Choice("collect.ahead", 0, "one device plays and learns in turn")
    if reason := why_not_ahead(config):
        return Choice("collect.ahead", 0, reason)
    return Choice("collect.ahead", 1, "one GPU plays while another learns")


def settle(
    config: Config, machine: Machine, before: Config | None = None
) -> tuple[Config, list[Choice]]:
    """The config with batch sizes that suit the machine, where none were given; and every choice
    with its reason. A run that is resumed keeps what was chosen when it began, so that its numbers
    stay the same on another machine."""
    where, precision = choose_precision(
        machine, config.engine.device, config.engine.dtype, config.learn.weights
    )
    settled, made = config.model_copy(deep=True), [where, precision]
    wanted = (*choose_room(machine, where.value), choose_ahead(machine, where.value, config))
    for choice in wanted:
        section, _, field = choice.key.partition(".")
        if field in getattr(config, section).model_fields_set:
            choice = replace(choice, value=getattr(getattr(config, section), field), why="as asked")
        elif before is not None:
            kept = getattr(getattr(before, section), field)
            choice = replace(choice, value=kept, why="as when the run began")
        setattr(getattr(settled, section), field, choice.value)
        made += [choice] if choice.value else []
    if machine.offline_by or machine.network is False:  # None: not looked up
        why = f"{machine.offline_by} is set" if machine.offline_by else "no network"
        made.append(Choice("offline", True, f"{why}: local caches, offline W&B"))
    return settled, made


def prepare(config: Config, folder: Path, say: Callable[[str], None], *, resume: bool) -> Config:
    """Look, choose, tell the libraries and the person; the config to run with."""
    machine = detect(look_for_network=needs_network(config, os.environ))
    check_device(config.engine.device, machine, "engine.device")
    begun = resume and (folder / "config.yaml").exists()
    settled, choices = settle(config, machine, RunDir(folder).config() if begun else None)
    if any(choice.key == "offline" for choice in choices):
        go_offline()
    say(f"machine: {machine.describe()}")
    for choice in choices:
        if choice.why != "as asked":
            say(f"  {choice}")
    return settled


def check_device(device: str, machine: Machine, option: str = "the device") -> None:
    """Refuse a device that is not there, before anything is written."""
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and not index.isdigit()):
        raise ConfigError(f"{option} is {device!r}; it is auto, cpu, cuda, or one GPU, as cuda:1")
    if kind == "cuda" and not machine.gpus:
        raise ConfigError(
            f"{option} is {device!r} and this machine has no GPU that torch can use; say auto, or "
            "run where there is one (`sparring doctor` tells)"
        )
    last = len(machine.gpus) - 1
    if kind == "cuda" and int(index or 0) > last:
        raise ConfigError(f"{option} is {device!r}, and the last GPU is cuda:{last}")


def go_offline(environment: dict[str, str] | None = None) -> None:
    """Tell the libraries that would otherwise wait for a network; before they are imported."""
    target: Any = os.environ if environment is None else environment
    for name, value in (
        ("HF_HUB_OFFLINE", "1"),
        ("HF_DATASETS_OFFLINE", "1"),
        ("WANDB_MODE", "offline"),
    ):
        target.setdefault(name, value)


def needs_network(config: Config, environment: Mapping[str, str]) -> bool:
    """Whether anything in this run would reach for a network: a hub's name, or a W&B key."""
    names = [config.policy, *config.sources()]
    hub = any(n and "/" in n and "@" not in n and not Path(n).expanduser().exists() for n in names)
    services = (
        (config.tracking.wandb, "WANDB_API_KEY"),
        (config.tracking.trackio, "TRACKIO_SPACE_ID"),
    )
    return hub or any(wanted != "never" and environment.get(name) for wanted, name in services)


def detect(*, look_for_network: bool = False) -> Machine:
    """This machine, as it is. Nothing here waits longer than a few seconds."""
    offline = offline_variable()
    network = not unreachable() if look_for_network and not offline else None
    job = os.environ.get("SLURM_JOB_ID", "")
    return replace(_hardware(), slurm_job=job, network=network, offline_by=offline)


def release_free_memory() -> None:
    """Give freed memory back to the system, where it is much. The C library keeps what lies between
    blocks in use, and tensors of ever other sizes leave more and more of it; a small model would
    only have to ask for it again, page by page."""
    library = ctypes.CDLL(None)
    with suppress(AttributeError):  # glibc's alone
        if not hasattr(library, "mallinfo2") or _free_bytes(library) > _KEPT_BYTES:
            library.malloc_trim(0)


def _free_bytes(library: Any) -> int:
    """What the C library holds and nobody uses: the ninth of the ten figures that it keeps."""
    library.mallinfo2.restype = type("Mallinfo", (ctypes.Structure,), {"_fields_": _TEN})
    return int(library.mallinfo2().figure_8)


@cache
def _hardware() -> Machine:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return Machine(tuple(map(_gpu, range(count))), cores(), memory)


def _gpu(index: int) -> Gpu:
    import torch

    facts = torch.cuda.get_device_properties(index)
    capability = (facts.major, facts.minor)
    runs = capability >= _AMPERE and _product_is_right(f"cuda:{index}")
    return Gpu(facts.name, capability, facts.total_memory / 1e9, runs)


def _product_is_right(device: str) -> bool:
    """On a GPU what does not work raises, so the trial needs no process of its own."""
    import torch

    try:
        ones = torch.ones(64, 64, dtype=torch.bfloat16, device=device)
        return float((ones @ ones).sum()) == 64**3
    except RuntimeError:
        return False


def cores() -> int:
    """The cores this process may use, which in a container or a job are fewer than there are."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        allowed = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or no limit: "max"
        return allowed


def unreachable() -> str:
    """Why the hub does not answer, itself or through a proxy; nothing where it does. Asked in a
    thread that is left behind: looking up a name heeds no time-out of ours."""
    if variable := offline_variable():
        return f"{variable} is set"
    import httpx

    url = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    reason = [f"no answer within {REACH_S} s"]

    def ask() -> None:
        try:
            httpx.head(url, timeout=REACH_S)
            reason[0] = ""
        except (httpx.HTTPError, OSError, ValueError) as error:
            reason[0] = str(error) or type(error).__name__

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(REACH_S)
    return reason[0]


def offline_variable() -> str:
    """The variable that says to stay offline, if one is set."""
    words = {name: os.environ.get(name, "").strip().lower() for name in _OFFLINE}
    return next((name for name, word in words.items() if word in ("1", "true", "yes", "on")), "")
