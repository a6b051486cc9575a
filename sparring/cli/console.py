"""What a person sees of a command: words, tables, or JSON for a machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

console = Console()

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Policy = Annotated[
    str, typer.Option(help="nano, smollm2, a model folder or hub name, RUN or RUN@STEP.")
]


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
    path = run / "evaluation.json"
    if not path.exists():
        return
    found = json.loads(path.read_text())
    before = found.pop("untrained", {})
    table = RichTable(title="after training (before)", box=None)
    for column in ("game", "against", "wins", "draws", "losses", "invalid"):
        table.add_column(column)
    for game, results in found.items():
        for opponent, score in results.items():
            if isinstance(score, dict) and "games" in score:
                old = before.get(game, {}).get(opponent, {})
                cells = [f"{score[k]} ({old.get(k, '–')})" for k in ("wins", "draws", "losses")]
                table.add_row(game, opponent, *cells, f"{score['invalid']} ({old.get('invalid')})")
        for name, value in results.get("exact", {}).items():
            old_value = before.get(game, {}).get("exact", {}).get(name, float("nan"))
            table.add_row(game, name, f"{value:.4f} ({old_value:.4f})")
    console.print(table)


def say(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
        return
    table = RichTable(box=None, show_header=False, pad_edge=False)
    for key, value in facts.items():
        table.add_row(str(key), str(value))
    console.print(table)
