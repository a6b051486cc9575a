"""The recipes of equivalence, whole: rounds with their files, an exam, a report, and resuming."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from browser import assert_tables_align
from lives import Moment, events, train, whole

from sparring.core.errors import ConfigError
from sparring.core.types import Episode, Task
from sparring.judge.sandbox import probe
from sparring.learn.demonstrations import read_demonstrations
from sparring.pipelines.equivalence.exam import exam_stats, load_pairs
from sparring.pipelines.equivalence.teacher import alice_records, balanced, bob_records, earlier
from sparring.run.rundir import read_lines
from sparring.tasks import load_tasks

jailed = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
SMALL = ("iterations=2", "collect.episodes=3", "checkpoint.every=1", "learn.epochs=1")
SMALL += ("games.equivalence.work=20000",)
FILES = ("iteration_data.jsonl", "alice_training_data.jsonl", "bob_training_data.jsonl")
FILES += ("seq_summary.jsonl", "rejected.jsonl")
REPORTS: list[Path] = []  # of the smoke runs, which one browser then opens


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def folders(run: Path) -> dict[str, str]:
    """All that the rounds left behind, but for the adapters, whose weights a checkpoint holds."""
    found = run.glob("iteration_*/*.jsonl")
    return {str(path.relative_to(run)): path.read_text() for path in found}


def without_clock(found: dict[str, Any]) -> dict[str, Any]:
    for episodes in found["episodes"]:
        for episode in episodes:
            episode.verdicts = [(v.status, v.kind, v.detail) for v in episode.verdicts]
    return found


@jailed
@pytest.mark.parametrize("recipe", ["equivalence", "equivalence-bob"])
def test_a_smoke_run_leaves_what_the_source_names(tmp_path: Path, recipe: str) -> None:
    run = tmp_path / "run"
    life = train(recipe, run, *SMALL)
    assert life.code == 0, life.err
    lines = list(read_lines(run / "metrics.jsonl"))
    assert [line["iteration"] for line in lines] == [0, 1, 2]
    assert all("pairs_eval/accuracy" in line for line in lines)
    buffered = 0
    for number in (1, 2):
        folder = run / f"iteration_{number}"
        assert all((folder / name).is_file() for name in FILES)
        [summary] = rows(folder / "seq_summary.jsonl")
        assert summary["games"] == 3 and summary["iteration"] == number
        accepted = rows(folder / "iteration_data.jsonl")
        assert len(accepted) == summary["accepted"] == sum(summary["difficulties"])
        assert all(row["status"] == "accepted" and "difficulty" in row for row in accepted)
        records = rows(folder / "bob_training_data.jsonl")
        assert len(records) == summary["bob_records"] >= buffered  # cumulative
        buffered = len(records)
        if records:
            assert len(read_demonstrations(str(folder / "bob_training_data.jsonl"))) == buffered
            assert (folder / "bob_adapters" / "adapter_config.json").is_file()
            assert (folder / "bob_adapters" / "adapter_model.safetensors").is_file()
        assert not (folder / "alice_adapters").exists()  # she is a program here
    assert buffered
    page = (run / "report.html").read_text()
    if recipe == "equivalence":  # whose tables are those of the other, too
        REPORTS.append(run / "report.html")
    assert "Bob on held-out pairs" in page and "What was played" in page


def test_the_tables_of_their_reports_align() -> None:
    if not REPORTS:
        pytest.skip("no smoke run was made in this session")
    assert_tables_align(*REPORTS)


@jailed
def test_a_run_that_died_equals_one_that_never_did(tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    small = (*SMALL, "pairs.data=null", "collect.episodes=2")
    assert train("equivalence", unbroken, *small).code == 0
    for moment in (Moment("000002.jsonl.gz"), Moment("bob_training_data.jsonl", 2)):
        life = train("equivalence", broken, *small, resume=True, die_at=moment)
        assert life.code == -9, f"{moment} did not come: {life.err}"
    life = train("equivalence", broken, *small, resume=True)
    assert life.code == 0, life.err
    assert events(broken, "resumed")
    assert without_clock(whole(broken)) == without_clock(whole(unbroken))
    assert folders(broken) == folders(unbroken) and folders(broken)


def episode(branch: str, difficulty: float, answers: list[Any], **facts: Any) -> Episode:
    known = {
        "language": "python",
        "branch": branch,
        "function": "f",
        "p": "def f(): return 1",
        "q": "def f(): return 2 - 1",
        "input": None if branch == "seq" else "[]",
        "target": 8,
        "difficulty": difficulty,
        "answers": answers,
        **facts,
    }
    return Episode("1-0", "equivalence", Task("t"), 0, facts=known)


def test_alices_record_carries_the_difficulty_that_was_measured() -> None:
    rewrite, predict = alice_records(episode("sinq", 3.0, []), "short", predict=True)
    assert "10 (nobody): 3\n" in rewrite["user_prompt"]
    assert rewrite["output"].endswith("INPUT: []") and "```python" in rewrite["output"]
    assert predict["output"] == "3" and "not equivalent" in predict["user_prompt"]
    proof = episode("seq", 3.0, [], proof="lemma = ()", language="haskell")
    proved = alice_records(proof, "short")
    assert [record["task"] for record in proved] == ["rewrite", "prove"]
    assert "lemma = ()" in proved[1]["output"]


def test_bobs_records_hold_both_orders_and_his_own_reasons_where_they_were_right() -> None:
    answers = [
        {"swapped": False, "answer": True, "text": "Both give 1.\nANSWER: yes"},
        {"swapped": True, "answer": False, "text": "ANSWER: no"},
    ]
    plain, swapped = bob_records(episode("seq", 5.0, answers), "reason")
    assert plain["output"] == "Both give 1.\nANSWER: yes" and swapped["output"] == "ANSWER: yes"
    first, second = (r["user_prompt"].index("2 - 1") for r in (plain, swapped))
    assert first > second
    outputs = [r["output"] for r in bob_records(episode("sinq", 5.0, answers), "short")]
    assert outputs == ["no", "no"]


def test_balanced_branches_weigh_the_same() -> None:
    records = [{"task": "judge", "branch": branch} for branch in ("seq", "seq", "seq", "sinq")]
    weights = balanced(records)
    assert weights[:3] == pytest.approx([2 / 3] * 3) and weights[3] == pytest.approx(2)
    assert sum(weights) == pytest.approx(4)
    assert balanced(records[:3]) == [1.0] * 3


def test_the_exam_is_balanced_held_out_and_counts_what_is_no_answer() -> None:
    pairs = load_pairs("shipped", "python")
    assert len(pairs) >= 200
    assert sum(pair.equivalent for pair in pairs) * 2 == len(pairs)
    trained = {t.data["code"] for t in load_tasks("shipped:equivalence_python", "train")}
    assert not trained & {pair.p for pair in pairs}
    found = exam_stats(
        [
            {"equivalent": True, "answer": True},
            {"equivalent": True, "answer": None},
            {"equivalent": False, "answer": False},
            {"equivalent": False, "answer": True},
        ]
    )
    assert found["accuracy"] == 0.5
    assert found["confusion"] == {"equivalent": [1, 0, 1], "inequivalent": [1, 1, 0]}


def test_pairs_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"id": "x", "p": "def f(): pass", "claim": "equivalent"}\n')
    with pytest.raises(ConfigError, match=r"pair x .* 'q'"):
        load_pairs(str(file), "python")


def test_records_of_earlier_rounds_are_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "bob.jsonl"
    file.write_text('{"user_prompt": "?", "output": "yes", "branch": "seq"}\n')
    [record] = earlier(str(file))
    assert record["branch"] == "seq" and record["task"] == "given"
    assert earlier(None) == []
    file.write_text('{"user_prompt": "?"}\n')
    with pytest.raises(ConfigError, match="record 1"):
        earlier(str(file))
