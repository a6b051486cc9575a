"""The row that a benchmark prints is what the runs' own files say."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from sparring.run.config import load_recipe

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name: str, monkeypatch):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(FOLDER)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def evidence(monkeypatch):
    return load("evidence", monkeypatch)


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


def test_a_row_may_have_a_benchmark_of_its_own_after_it(evidence, tmp_path, monkeypatch):
    finished(tmp_path / "prediction-0", [{"reward/code_prediction/author": 0.1}] * 2)
    ran = []
    monkeypatch.setattr(evidence.subprocess, "run", lambda words, check: ran.append(words))
    words = ["prediction", "--runs", str(tmp_path), "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", ["evidence.py", *words])
    evidence.main()
    script = str(FOLDER / "prediction.py")
    assert ran == [[sys.executable, script, str(tmp_path / "prediction-0"), "mbpp.jsonl"]]


def test_a_run_in_phases_is_read_from_its_phases(evidence, tmp_path):
    phases = {
        name: {"pass_rate": rate, "seconds": 60} for name, rate in (("base", 0.1), ("dpo", 0.3))
    }
    (tmp_path / "phases.json").write_text(json.dumps(phases))
    assert evidence.before_and_after(tmp_path, "dpo/pass_rate", "base/pass_rate") == (0.1, 0.3)
    assert evidence.minutes(tmp_path) == 2


def test_every_row_is_a_recipe_with_overrides_it_takes(evidence):
    for row in evidence.ROWS.values():
        assert load_recipe(row.recipe, row.overrides).recipe == row.recipe


def test_every_row_of_the_table_of_results_is_printed_by_a_command(evidence):
    text = (FOLDER.parent / "docs" / "results.md").read_text()
    lines = text[text.index("| pipeline |") :].split("\n\n")[0].splitlines()[2:]
    rows = [line.split("|")[-2].strip() for line in lines]
    assert len(rows) > 20
    for cell in rows:
        commands = cell.split(", `")
        assert all(c.strip("`").split()[0] in evidence.ROWS and c.endswith("`") for c in commands)


def test_mathematics_is_graded_again_by_another_file_and_paired(tmp_path, monkeypatch, capsys):
    def lines(file: Path, rows: list[dict]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    for run, dpo in (("mathematics-0", "#### 4"), ("mathematics-correctness-0", "#### 5")):
        for stage, text in (("base", "#### 3"), ("sft", "#### 3"), ("dpo", dpo)):
            rows = [{"question": f"q{i} ", "text": text} for i in range(4)]
            lines(tmp_path / run / f"eval/{stage}.jsonl", rows)
    answers = [{"question": f"q{i}", "answer": f"so\n#### {a}"} for i, a in enumerate((4, 4, 3))]
    lines(tmp_path / "platinum.jsonl", answers)
    words = ["--runs", str(tmp_path), "--data", str(tmp_path / "platinum.jsonl")]
    monkeypatch.setattr(sys, "argv", ["mathematics.py", *words])
    load("mathematics", monkeypatch).main()
    out = capsys.readouterr().out
    assert "3 questions" in out and "  sft: 33.33;" in out and "  dpo: 66.67;" in out
    assert "alone: 0.00;" in out
    # gaps of 100, 100 and -100: a mean of 33.33 and a deviation of 115.47
    assert "base → dpo: +33.33 (-97.33 to +164.00) points" in out


def test_a_gain_is_paired_by_problem(monkeypatch):
    gain = load("prediction", monkeypatch).gain
    start, end = {"a": -1.0, "b": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}
    rewards = {("0", "0"): start, ("last", "0"): end}
    assert gain(rewards, ("0", "0"), ("last", "0")) == "+1.000 (-0.960 to +2.960)"


def test_cross_play_is_printed_with_its_intervals(monkeypatch):
    result = {
        "names": ["untrained", "stage 1"], "games": 40, "baseline_passed": [0.5, 0.75],
        "discriminator_wins": [[0.1, 0], [0.5, 0.25]],
        "interval_95": [[[0.04, 0.23], [0, 0.09]], [[0.35, 0.65], [0.14, 0.4]]],
    }  # fmt: skip
    lines = load("crossplay", monkeypatch).lines(result)
    assert lines[0] == "| programs broken, 40 games | untrained | stage 1 |"
    assert lines[3] == "| discriminator stage 1 | 0.50 (0.35 to 0.65) | 0.25 (0.14 to 0.40) |"
    assert lines[4] == "| baseline tests passed | 0.50 | 0.75 |"
