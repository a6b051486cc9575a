"""The same single-turn GRPO work on this project and on TRL's GRPOTrainer (transformers backend),
in turns, each in a process of its own: samples per second and peak memory.

    python benchmarks/grpo.py [--policy nano] [--prompts 16] [--generations 8] [--tokens 64]
        [--learn tokens_per_batch=4096 …] [--trl-float32]

TRL is left as it comes: gradient checkpointing, and where the weights are bf16 its moments are too.
With --trl-float32 it is given float32 weights and computes in bf16, which is what our learner does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Task

LETTER = "e"
LR = 1e-4


def reward(text: str) -> float:
    """How much of a reply is the letter: cheap, and never the same for all of a group."""
    return text.count(LETTER) / max(1, len(text))


def question(i: int) -> str:
    return f"Write a line about the number {i}, in plain words."


@dataclass
class OneReply(Game):
    seats: ClassVar[tuple[str, ...]] = ("writer",)

    async def play(self, task: Task, table: Table) -> Outcome:
        turn = await table["writer"].act(task.data["question"])
        return Outcome(writer=reward(turn.text))


Steps = list[tuple[float, float]]  # seconds of generating, and of the whole step


def ours(args: argparse.Namespace) -> Steps:
    from sparring.models.compute_thread import workbench
    from sparring.models.device import choose_device, fast_allocations

    fast_allocations()
    device, dtype = choose_device()
    with workbench(device):
        return _ours(args, device, dtype)


def _ours(args: argparse.Namespace, device: str, dtype: str) -> Steps:
    from sparring.core.collect import Job, collect
    from sparring.core.types import MAIN, Sampling
    from sparring.credit.group_relative import GroupRelative
    from sparring.engines.local.engine import TransformersEngine
    from sparring.learn.learner import Learner
    from sparring.models.compute_thread import bench
    from sparring.models.policies import load_policies
    from sparring.run.config import LearnConfig
    from sparring.training.lessons import teach

    given = dict(word.split("=", 1) for word in args.learn)
    config = LearnConfig(weights="full", lr=LR, aggregation="grpo", **given)
    policies = load_policies(args.policy, config, device=device, dtype=dtype)
    learner = Learner(policies, [MAIN], config, max_tokens=args.tokens)
    engine = TransformersEngine(policies, max_batch=args.prompts * args.generations)
    game, credit = OneReply(), GroupRelative(scale="group")
    gc.freeze()  # as the loop of a run does
    seconds = []
    for step in range(args.warm + args.steps):
        jobs = [
            Job(
                id=f"{step}-{p}-{g}",
                name="one_reply",
                game=game,
                task=Task(str(p), data={"question": question(step * args.prompts + p)}),
                seed=hash((step, p, g)) & 0xFFFFFFFF,
                seating={"writer": MAIN},
                group=f"{step}-{p}",
                learned=frozenset({MAIN}),
            )
            for p in range(args.prompts)
            for g in range(args.generations)
        ]
        started = time.perf_counter()
        sampling = Sampling(max_tokens=args.tokens)
        episodes = asyncio.run(collect(jobs, engine.act, sampling=sampling))
        played = time.perf_counter()
        lesson = partial(learner.fit, teach(credit, episodes), step, args.warm + args.steps)
        shared = bench()
        shared.submit(lesson).result() if shared else lesson()
        seconds.append((played - started, time.perf_counter() - started))
    return seconds[args.warm :]


def _plan(args: argparse.Namespace, folder: str, device: str, dtype: str) -> Any:
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=args.prompts * args.generations,
        num_generations=args.generations,
        max_completion_length=args.tokens,
        max_steps=args.warm + args.steps,
        learning_rate=LR,
        beta=0.0,
        loss_type="grpo",
        bf16=dtype == "bfloat16",
        use_cpu=device == "cpu",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )


def theirs(args: argparse.Namespace) -> Steps:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    from sparring.models.device import choose_device
    from sparring.models.loading import load_model

    device, dtype = choose_device()
    precise = "float32" if args.trl_float32 else dtype
    model, tokenizer = load_model(args.policy, device=device, dtype=precise, seed=0)
    model.train()
    tokenizer.padding_side = "left"
    count = args.prompts * (args.warm + args.steps + 1)
    data = Dataset.from_list(
        [{"prompt": [{"role": "user", "content": question(i)}]} for i in range(count)]
    )
    stamps: list[float] = []
    spoken: list[float] = []

    class Speaking(GRPOTrainer):
        def _generate(self, *given: Any) -> Any:
            started = time.perf_counter()
            said = super()._generate(*given)
            spoken.append(time.perf_counter() - started)
            return said

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            stamps.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:

        def rewards(completions: list[Any], **_: Any) -> list[float]:
            return [reward(completion[0]["content"]) for completion in completions]

        trainer = Speaking(
            model=model,
            args=_plan(args, folder, device, dtype),
            train_dataset=data,
            reward_funcs=rewards,
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        trainer.train()
    whole = [b - a for a, b in itertools.pairwise(stamps)]
    return list(zip(spoken[1:], whole, strict=True))[args.warm - 1 :]


def measure(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    seconds = ours(args) if args.child == "sparring" else theirs(args)
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_reserved() / 2**30
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    samples = args.prompts * args.generations
    return {
        "samples_per_second": [samples / whole for _, whole in seconds],
        "generating_s": [spoken for spoken, _ in seconds],
        "step_s": [whole for _, whole in seconds],
        "peak_gib": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="nano")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--warm", type=int, default=1, help="steps before, which are not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learn", nargs="*", default=[], help="key=value for our learner")
    parser.add_argument("--trl-float32", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=["sparring", "trl"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args)))
        return
    found: dict[str, list[dict[str, Any]]] = {"sparring": [], "trl": []}
    for _ in range(args.rounds):
        for name, results in found.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--child", name]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results.append(json.loads(out.strip().splitlines()[-1]))
    speed = {n: [statistics.median(r["samples_per_second"]) for r in rs] for n, rs in found.items()}
    peak = {n: max(r["peak_gib"] for r in rs) for n, rs in found.items()}
    seconds = {
        n: {k: statistics.median(x for r in rs for x in r[k]) for k in ("generating_s", "step_s")}
        for n, rs in found.items()
    }
    summary = {
        "samples_per_second": {n: statistics.median(v) for n, v in speed.items()},
        "spread": {n: [min(v), max(v)] for n, v in speed.items()},
        "seconds": seconds,
        "peak_gib": peak,
        "speed_ratio": statistics.median(speed["sparring"]) / statistics.median(speed["trl"]),
        "memory_ratio": peak["sparring"] / peak["trl"],
    }
    if args.json:
        print(json.dumps(summary))
        return
    for name, values in speed.items():
        print(
            f"{name:9} {statistics.median(values):8.1f} samples/s "
            f"({min(values):.1f} to {max(values):.1f})   peak {peak[name]:.2f} GiB   a step "
            f"{seconds[name]['step_s']:.2f} s, of it generating {seconds[name]['generating_s']:.2f}"
        )
    print(f"{summary['speed_ratio']:.1f} × the samples, {summary['memory_ratio']:.2f} × the memory")


if __name__ == "__main__":
    main()
