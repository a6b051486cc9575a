"""reasoning-gym's side of the bridge, run in a worker process: its scorers read what a model wrote
with evaluators and parsers that may take for ever."""

from __future__ import annotations

from typing import Any

import reasoning_gym
from reasoning_gym.factory import DATASETS
from reasoning_gym.utils import SYSTEM_PROMPTS, extract_answer

from sparring.bridges.host import serve

_open: dict[int, tuple[Any, dict[str, Any]]] = {}  # number -> data set, its one entry


def open_task(
    environment: int, game: str, players: int, seed: int, settings: dict[str, Any]
) -> dict[str, Any]:
    prompt = SYSTEM_PROMPTS[settings.pop("system_prompt")]
    dataset = reasoning_gym.create_dataset(game, size=1, seed=seed, **settings)
    entry = dataset[0]
    _open[environment] = dataset, entry
    return {"player": 0, "observation": f"{prompt.strip()}\n\n{entry['question']}"}


def step(environment: int, action: str) -> dict[str, Any]:
    dataset, entry = _open[environment]
    answer = extract_answer(action)
    score = float(dataset.score_answer(answer=answer, entry=entry))
    info = {"answer": answer, "expected": str(entry["answer"])}
    return {"rewards": {0: score}, "info": {0: info}}


def ids(environment: int) -> dict[str, str]:
    lines = {}
    for name, (kind, _) in DATASETS.items():
        lines[name] = " ".join((kind.__doc__ or kind.__name__).strip().split("\n")[0].split())
    return lines


if __name__ == "__main__":
    serve(
        {"open": open_task, "step": step, "ids": ids},
        close=lambda number: _open.pop(number, None) and None,
    )
