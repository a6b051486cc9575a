"""The row that a benchmark prints is what the runs' own files say."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from sparring.run.config import load_recipe

FILE = Path(__file__).parents[1] / "benchmarks/evidence.py"


@pytest.fixture
def evidence(monkeypatch):
    spec = importlib.util.spec_from_file_location("evidence", FILE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "evidence", module)
    spec.loader.exec_module(module)
    return module


def finished(folder: Path, lines: list[dict], evaluation: dict | None = None) -> None:
    folder.mkdir()
    (folder / "report.html").touch()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if evaluation:
        (folder / "evaluation.json").write_text(json.dumps(evaluation))


def test_row_holds_before_after_and_the_interval_over_seeds(
    evidence, tmp_path, monkeypatch, capsys
):
    for seed, after in enumerate((1, 2, 3)):
        kuhn = {"exact": {"exploitability": after}}
        before = {"untrained": {"kuhn": {"exact": {"exploitability": 9}}}}
        finished(tmp_path / f"kuhn-{seed}", [{"time/total_s": 60.0}] * 2, {"kuhn": kuhn} | before)
    monkeypatch.setattr(sys, "argv", ["evidence.py", "kuhn", "--runs", str(tmp_path)])
    evidence.main()
    cells = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].split("|")]
    # Student's t for two degrees of freedom is 4.303, the standard error of 1, 2, 3 is 0.577
    assert cells[4:9] == ["9", "1, 2, 3", "-0.484 to 4.48", "3", "2.0"]


def test_without_an_evaluation_the_first_and_last_metric_count(evidence, tmp_path):
    lines = [{"mbpp_eval/pass_rate": 0.1}, {}, {"mbpp_eval/pass_rate": 0.3}, {"other": 1}]
    finished(tmp_path / "code-0", lines)
    assert evidence.before_and_after(tmp_path / "code-0", "mbpp_eval/pass_rate") == (0.1, 0.3)
    with pytest.raises(SystemExit, match="no 'other/thing'"):
        evidence.before_and_after(tmp_path / "code-0", "other/thing")


def test_every_row_is_a_recipe_with_overrides_it_takes(evidence):
    for row in evidence.ROWS.values():
        assert load_recipe(row.recipe, row.overrides).recipe == row.recipe
