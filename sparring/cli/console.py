"""What a person sees of a command: words, tables, or JSON for a machine."""

from __future__ import annotations

import json
import logging
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

console = Console()

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Policy = Annotated[
    str, typer.Option(help="nano, smollm2, a model's folder or hub name, RUN or RUN@STEP.")
]


class OnCurrentStderr(logging.StreamHandler[Any]):
    """Log lines by way of whatever `sys.stderr` is: a progress bar puts them above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def show(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def show_epoch(metrics: dict[str, Any]) -> None:
    console.print(
        f"epoch {metrics['iteration']}: loss {metrics['learn/loss']:.4f}, "
        f"{metrics['learn/steps']:.0f} steps, {metrics['tokens_per_s']:,.0f} tokens/s",
        highlight=False,
    )


def show_evaluation(run: Path) -> None:
    """The closing evaluation as a table, where there is one."""
    from sparring.core.formatting import number
    from sparring.run.rundir import read_object
    from sparring.view.markup import game_name, opponent_name
    from sparring.view.metrics import measure

    path = run / "evaluation.json"
    if not path.exists():
        return
    evaluation = read_object(path)
    before = evaluation.pop("untrained", {})
    warm = any("after_imitation" in results for results in evaluation.values())
    title = "after training (after imitation; before)" if warm else "after training (before)"
    played, measured = RichTable(title=title, box=None), RichTable(title=title, box=None)
    for column in ("game", "against", "won", "drawn", "lost", "invalid"):
        played.add_column(column)
    for column in ("game", "measure", "value"):
        measured.add_column(column)
    for game, results in evaluation.items():
        earlier = [results[w] for w in ("after_imitation",) if w in results]
        earlier.append(before.get(game, {}))
        for opponent, score in results.items():
            if isinstance(score, dict) and "games" in score:
                old = [one.get(opponent, {}) for one in earlier]
                counts = (
                    f"{score[k]} ({'; '.join(str(o.get(k, '–')) for o in old)})"
                    for k in ("wins", "draws", "losses", "invalid")
                )
                played.add_row(game_name(game), opponent_name(opponent), *counts)
        for key, value in results.get("exact", {}).items():
            name, _, share = measure(key)
            was = [one.get("exact", {}).get(key, math.nan) for one in earlier]
            values = f"{number(value, share)} ({'; '.join(number(v, share) for v in was)})"
            measured.add_row(game_name(game), name, values)
    for table in (played, measured):
        if table.row_count:
            console.print(table)


def say(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
        return
    table = RichTable(box=None, show_header=False, pad_edge=False)
    for key, value in facts.items():
        table.add_row(str(key), f"{value:.6g}" if isinstance(value, float) else str(value))
    console.print(table)
