"""The recipe coherent-math, whole and small: five phases, what is skipped, what survives a kill."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from browser import assert_tables_align
from lives import Life, Moment, sparring

from sparring.engines import make as engines
from sparring.pipelines.coherent_math import phases
from sparring.pipelines.coherent_math.whole_run import comparisons
from sparring.run.config import load_recipe
from sparring.run.rundir import read_lines

PHASES = (
    *("eval_base", "sft", "eval_sft", "rollouts", "preferences", "dpo", "eval_dpo"),
    *("arms_sft", "arms_dpo"),
)


def train(run: Path, *more: object, die_at: Moment | None = None) -> Life:
    words = ("train", "coherent-math", "--smoke", "--run", run.name)
    return sparring(*words, *more, cwd=run.parent, die_at=die_at)


def timeless(run: Path) -> dict:
    """What the phases found, less what the clock had to say."""
    found = json.loads((run / "phases.json").read_text())
    clock = ("seconds", "tokens_per_s", "made", "skipped")
    return {
        name: {k: v for k, v in facts.items() if k not in clock} for name, facts in found.items()
    }


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Life]:
    run = tmp_path_factory.mktemp("math") / "run"
    return run, train(run)


def test_all_five_phases_leave_what_they_made(unbroken: tuple[Path, Life]):
    run, life = unbroken
    assert life.code == 0, life.err
    found = json.loads((run / "phases.json").read_text())
    assert [*found] == [*PHASES, "comparisons"]
    assert found["sft"]["loss"][-1] < found["sft"]["loss"][0]
    assert found["rollouts"]["trajectories"] == 3 * 11 and found["rollouts"]["void"] == 0
    assert 0 <= found["rollouts"]["s_wm"] <= 1 and len(found["rollouts"]["arms"]) == 11
    assert found["arms_dpo"]["questions"] == found["arms_sft"]["questions"] == 1
    assert found["preferences"]["pairs"] > 0
    assert found["dpo"]["loss"][-1] < found["dpo"]["loss"][0]
    assert found["eval_dpo"]["problems"] == 4 and "interval_95" in found["eval_dpo"]
    assert found["comparisons"] == comparisons(run) and len(found["comparisons"]) == 3
    lines = list(read_lines(run / "rollouts.jsonl"))
    assert [line["id"] for line in lines] == ["1-1", "1-2", "1-3"]
    for pair in read_lines(run / "preferences.jsonl"):
        assert {"question", "chosen", "rejected", "pair_type", "chosen_s_wm"} <= set(pair)
    page = (run / "report.html").read_text()
    assert_tables_align(run / "report.html")
    assert "Preferences" in page and "coherent-math" in page
    assert life.out.splitlines()[-1] == str((run / "report.html").resolve())


def test_a_pipeline_that_died_equals_one_that_did_not(tmp_path: Path, unbroken: tuple[Path, Life]):
    whole, run = unbroken[0], tmp_path / "run"
    for moment in (
        Moment("sft.unfinished/lora/checkpoints/.step_000020.unfinished", 3),  # between two epochs
        Moment(".rollouts.jsonl.unfinished", 5),  # in a chunk of rollouts
        Moment("dpo.unfinished/reference.safetensors"),  # when the reference is known
    ):
        life = train(run, "--resume", die_at=moment)
        assert life.code == -signal.SIGKILL, f"{moment}: {life.out}{life.err}"
    life = train(run, "--resume")
    assert life.code == 0, life.err
    assert timeless(run) == timeless(whole)
    for name in ("rollouts.jsonl", "preferences.jsonl", "eval/dpo.jsonl"):
        assert (run / name).read_text() == (whole / name).read_text()
    manifest = "dpo/checkpoints/step_000003/manifest.json"
    assert (run / manifest).read_text() == (whole / manifest).read_text()


def test_each_phase_is_a_command(tmp_path: Path, unbroken: tuple[Path, Life]):
    run, _ = unbroken
    rollouts, merged = run / "rollouts.jsonl", run / "sft" / "merged"
    words = ("math", "preferences", "--smoke", "--json", "--rollouts", rollouts, "--out", "p.jsonl")
    for skipped in (False, True):
        life = sparring(*words, cwd=tmp_path)
        assert life.code == 0 and json.loads(life.out)["skipped"] is skipped, life.err
    life = sparring(*words, "math.preferences.coherence=0", cwd=tmp_path)
    assert life.code == 2 and "not made from this" in life.err
    words = ("math", "rollouts", "--smoke", "--json", "--policy", merged, "--out", "r.jsonl")
    life = sparring(*words, "math.rollouts.questions=1", cwd=tmp_path)
    assert life.code == 0 and json.loads(life.out)["questions"] == 1, life.err
    words = ("math", "eval", "--smoke", "--policy", run / "dpo", "--out", "e.jsonl")
    life = sparring(*words, "math.gsm8k.problems=2", cwd=tmp_path)
    assert life.code == 0 and len((tmp_path / "e.jsonl").read_text().splitlines()) == 2, life.err


def test_bad_input_is_named_and_leaves_earlier_outputs_alone(
    tmp_path: Path, unbroken: tuple[Path, Life]
):
    run, _ = unbroken
    before = (run / "preferences.jsonl").read_bytes()
    bad, empty = tmp_path / "bad.jsonl", tmp_path / "empty.jsonl"
    bad.write_text('{"question": "How many?", "answer": "seven"}\n')
    empty.write_text("")
    for words, said in (
        ((f"tasks.source={bad}",), "has no ####"),
        ((f"math.gsm8k.data={bad}",), "has no ####"),
        (("games.coherent_math.arms=[wolfram_0]",), "two arms or more"),
        (("math.gsm8k.data=shipped:python",), "no word problem"),
    ):
        life = train(run, "--resume", *words)
        assert life.code == 2 and said in life.err, life.err
    for phase, said in (
        (("preferences", "--rollouts", empty, "--out", "p.jsonl"), "is empty"),
        (("dpo", "--model", "nano", "--preferences", empty, "--out", "d"), "no valid pair"),
        (("sft", "--out", "s", f"tasks.source={bad}"), "has no ####"),
    ):
        life = sparring("math", *phase, "--smoke", cwd=tmp_path)
        assert life.code == 2 and said in life.err, life.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.jsonl", "empty.jsonl"]
    assert (run / "preferences.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ("sft", "--out", "deep/er/sft", "policy=nope"),
        ("rollouts", "--policy", "nope", "--out", "deep/rollouts.jsonl"),
        ("eval", "--policy", "nope", "--out", "deep/eval.jsonl"),
    ],
)
def test_a_phase_whose_model_cannot_be_had_leaves_nothing_behind(
    tmp_path: Path, words: tuple[str, ...]
):
    life = sparring("math", *words, cwd=tmp_path)
    assert life.code == 2 and "no policy 'nope'" in life.err, life.err
    assert list(tmp_path.iterdir()) == []


def test_the_pipeline_begins_with_a_whole_model(tmp_path: Path):
    life = train(tmp_path / "run", "begin.main=nano")
    assert life.code == 2 and "leave `begin` out" in life.err
    assert list(tmp_path.iterdir()) == []


def test_an_evaluation_asks_by_the_engine_that_the_config_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made, make = [], engines.make_engine
    monkeypatch.setattr(
        engines, "make_engine", lambda *given: made.append(given[0].engine) or make(*given)
    )
    keys = ["engine.cache_gb=0.25", "math.gsm8k.problems=1", "math.gsm8k.max_tokens=2"]
    config = load_recipe("coherent-math", keys, smoke=True)
    assert phases.evaluation(config, "nano", tmp_path / "eval.jsonl")["problems"] == 1
    assert [engine.cache_gb for engine in made] == [0.25]


def test_what_is_tested_on_is_not_trained_on(tmp_path: Path):
    shared = tmp_path / "shared.jsonl"
    shared.write_text('{"question": "How many?", "answer": "#### 7"}\n')
    run = tmp_path / "run"
    life = train(run, f"tasks.source={shared}", f"math.gsm8k.data={shared}")
    assert life.code == 2 and "1 questions of the evaluation" in life.err
    assert not run.exists()


def test_no_phase_learns_from_what_is_tested_on(tmp_path: Path):
    """Each phase of its own, in other words and in another file; nothing is left behind."""
    question = "Ada has 3 apples and buys 4. How many?"
    (tmp_path / "kept.jsonl").write_text(
        json.dumps({"question": "Ben?", "answer": "#### 1"})
        + "\n"
        + json.dumps({"problem": question, "gt_solution": "3 + 4 = 7\n#### 7"})
        + "\n"
    )
    shifted = question.replace("buys", "BUYS ").replace("?", " ?")
    rows = [{"question": shifted, "answer": "3 + 4 = 7\n#### 7"}]
    (tmp_path / "learn.jsonl").write_text(json.dumps(rows[0]) + "\n")
    side = {"arm": "a", "correct": True, "text": "x"}
    rollout = {"question": shifted, "trajectories": [side, side], "void": None}
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(rollout) + "\n")
    pair = {"question": shifted, "chosen": "7", "rejected": "8", "pair_type": "correctness"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    there = sorted(path.name for path in tmp_path.iterdir())
    # The first question alone is asked, and the second must be kept out all the same.
    keys = ("math.gsm8k.data=kept.jsonl", "math.gsm8k.problems=1", "tasks.source=learn.jsonl")
    for phase in (
        ("sft", "--out", "s"),
        ("rollouts", "--policy", "nano", "--out", "r.jsonl"),
        ("preferences", "--rollouts", "rollouts.jsonl", "--out", "p.jsonl"),
        ("dpo", "--model", "nano", "--preferences", "pairs.jsonl", "--out", "d"),
    ):
        life = sparring("math", *phase, *keys, "--smoke", cwd=tmp_path)
        assert life.code == 2 and "1 questions of the evaluation" in life.err, (phase, life.err)
    (tmp_path / "learn.jsonl").rename(tmp_path / "gsm8k_test.jsonl")
    words = ("math", "sft", "--out", "s", "tasks.source=gsm8k_test.jsonl", "--smoke")
    life = sparring(*words, cwd=tmp_path)
    assert life.code == 2 and "calls itself a test set" in life.err, life.err
    (tmp_path / "gsm8k_test.jsonl").rename(tmp_path / "learn.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == there


def test_nothing_is_made_twice_and_a_change_makes_only_what_hangs_on_it(
    unbroken: tuple[Path, Life],
):
    run, _ = unbroken
    assert train(run).code == 2  # a run that is there is gone on with only when asked
    life = train(run, "--resume")
    assert life.code == 0 and life.out.count("(as it was)") == len(PHASES), life.out
    life = train(run, "--resume", "math.preferences.correctness=3")
    assert life.code == 0, life.err
    made = [line.split(" ")[0] for line in life.out.splitlines() if " s): " in line]
    assert made == ["preferences", "dpo", "eval_dpo", "arms_dpo"]
