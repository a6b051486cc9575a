"""Which pairs are made of which rollouts, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparring.core.errors import ConfigError
from sparring.pipelines.coherent_math.config import PreferencesConfig
from sparring.pipelines.coherent_math.preferences import (
    across,
    build_preferences,
    pairs_of,
    read_preferences,
    statistics,
)
from sparring.pipelines.coherent_math.rollouts import read_rollouts, rollout_stats


def said(arm: str, correct: bool, s_wm: float = 0.5, finish: str = "stop", text: str = "") -> dict:
    return {
        "arm": arm,
        "full_text": text or f"text of {arm}",
        "correct": correct,
        "reward": correct + 0.5 * s_wm,
        "finish": finish,
        "num_tokens": 9,
        **dict.fromkeys(("s_end", "s_path", "s_cf", "s_wm"), s_wm),
    }


def line(*trajectories: dict, **more: object) -> dict:
    own = {"id": "q", "question": "?", "void": None, "scores": {"s_wm": 0.5, "stability": None}}
    return {**own, "trajectories": list(trajectories), **more}


def kinds(found: list[dict]) -> list[tuple[str, str, str]]:
    return [(p["pair_type"], p["chosen_arm"], p["rejected_arm"]) for p in found]


def test_right_over_wrong_comes_first_then_coherent_over_less_so():
    own = line(said("a", True, 0.9), said("b", True, 0.6), said("c", False, 0.3))
    found = pairs_of(own, PreferencesConfig(margin=0.1))
    assert kinds(found) == [
        ("correctness", "a", "c"),
        ("correctness", "b", "c"),
        ("coherence", "a", "b"),
    ]
    assert (found[0]["question"], found[0]["chosen"]) == ("?", "text of a")
    assert found[0]["chosen_s_wm"] == 0.9 and found[0]["rejected_reward"] == pytest.approx(0.15)


def test_lines_are_parted_where_json_parts_them(tmp_path: Path):
    """A model may write what Unicode ends lines with; DPO then could not read its own pairs."""
    texts = "one\u2028two\x85three", "é\ud800"
    both = [said("a", True, text=texts[0]), said("b", False, text=texts[1])]
    file, own = tmp_path / "pairs.jsonl", line(*both, question="q\u2029")
    build_preferences([own], PreferencesConfig(), file)
    [pair] = read_preferences(file)
    assert (pair["chosen"], pair["rejected"], pair["question"]) == (*texts, "q\u2029")
    file.write_text(json.dumps(pair | {"rejected": ""}, ensure_ascii=False), encoding="utf-8")
    assert [p["chosen"] for p in read_preferences(file)] == [texts[0]]
    rows = tmp_path / "rollouts.jsonl"
    rows.write_text(json.dumps(line(both[0], both[0]), ensure_ascii=False), encoding="utf-8")
    assert len(read_rollouts(rows)) == 1


def test_a_gap_within_the_margin_makes_no_pair():
    own = line(said("a", True, 0.6), said("b", True, 0.5))
    assert pairs_of(own, PreferencesConfig(margin=0.1)) == []
    assert len(pairs_of(own, PreferencesConfig(margin=0.05))) == 1


def test_nothing_differs_nothing_is_paired():
    alike = [said(arm, True, 0.5, text="the same") for arm in "abc"]
    assert pairs_of(line(*alike), PreferencesConfig(margin=0.0)) == []
    assert pairs_of(line(said("a", False), said("b", False)), PreferencesConfig()) == []


def test_what_was_cut_off_is_rejected_but_never_chosen():
    own = line(said("a", True, 0.9, "length"), said("b", True), said("c", False, 0.3, "length"))
    found = pairs_of(own, PreferencesConfig())
    assert kinds(found) == [("correctness", "b", "c")]
    assert found[0]["rejected_finish"] == "length"


def test_caps_hold_and_the_pairs_are_spread():
    own = line(*[said(f"r{i}", True) for i in range(3)], *[said(f"w{i}", False) for i in range(2)])
    found = pairs_of(own, PreferencesConfig(correctness=4, coherence=0))
    assert len(set(kinds(found))) == 4
    assert {p["chosen_arm"] for p in found} == {"r0", "r1", "r2"}
    right, wrong = [{"n": i} for i in range(4)], [{"n": i} for i in range(6)]
    every = {(r["n"], w["n"]) for r, w in across(right, wrong, 99)}
    assert len(every) == 24 and across([], wrong, 3) == []
    assert pairs_of(own, PreferencesConfig(correctness=0, coherence=0)) == []


def test_the_file_and_its_statistics(tmp_path: Path):
    lines = [
        line(said("a", True, 0.9), said("b", False, 0.2)),
        line(said("a", False), said("b", False)),
        line(said("a", True, 0.5), said("b", True, 0.5)),
    ]
    out = tmp_path / "pairs.jsonl"
    facts = build_preferences(lines, PreferencesConfig(), out)
    assert facts == statistics(lines, [pairs_of(own, PreferencesConfig()) for own in lines])
    assert (facts["questions"], facts["pairs"], facts["correctness"]) == (3, 1, 1)
    assert (facts["all_wrong"], facts["all_right"], facts["questions_with_pairs"]) == (1, 1, 1)
    assert facts["correctness_gap"] == pytest.approx(0.7)
    assert [p["pair_type"] for p in read_preferences(out)] == ["correctness"]


def test_no_valid_pair_is_an_error_and_writes_nothing(tmp_path: Path):
    out = tmp_path / "pairs.jsonl"
    with pytest.raises(ConfigError, match=r"no valid pair: of 1 questions, 1 have no right"):
        build_preferences([line(said("a", False), said("b", False))], PreferencesConfig(), out)
    assert not out.exists()


def test_rollouts_that_cannot_be_used_are_named(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl"
    with pytest.raises(ConfigError, match="no file"):
        read_rollouts(path)
    for text, said_of_it in (
        ("", "is empty"),
        ("{}", "no file of rollouts"),
        ("torn {", "no file of rollouts"),
        (json.dumps(line(said("a", True))), "one arm only"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=said_of_it):
            read_rollouts(path)
    void = line(void="grader", scores={}, trajectories=[])
    path.write_text(f"{json.dumps(line(said('a', True), said('b', False)))}\n{json.dumps(void)}\n")
    assert len(read_rollouts(path)) == 1
    found = rollout_stats([line(said("a", True), said("b", False)), void])
    assert (found["questions"], found["void"], found["arms"]) == (2, 1, {"a": 1.0, "b": 0.0})


def test_pairs_that_cannot_be_used_are_named(tmp_path: Path):
    path = tmp_path / "pairs.jsonl"
    for text, said_of_it in (
        ("", "no valid pair"),
        ('{"question": "?", "chosen": "a"}', "'rejected'"),
        ("torn {", "not JSONL"),
        ("3", "'question'"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=said_of_it):
            read_preferences(path)
