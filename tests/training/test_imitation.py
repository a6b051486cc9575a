"""A policy that begins by imitation is fitted to what it would have seen and said itself, once, and
a run that died meanwhile comes to the same digits."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from lives import Moment, events, facts, train, whole

from sparring.core.errors import ConfigError
from sparring.judge.sandbox import probe
from sparring.models.chat import Chat
from sparring.run.config import load_recipe
from sparring.run.rundir import read_lines
from sparring.training.imitation import FOLDER, gather, learn_config, play_programs
from sparring.training.state import Parts, build

MATCHING = ("games.matching.size=2", "games.matching.hints=4", "curriculum={}")


def parts_of(recipe: str, *overrides: str) -> Parts:
    return build(load_recipe(recipe, overrides, smoke=True))


def test_a_program_is_transcribed_in_the_ids_that_the_policy_would_see_and_say() -> None:
    parts = parts_of("matching-warm", *MATCHING)
    chat = Chat(parts.learner.policies.tokenizer)
    episodes = play_programs(parts, "main", "scripted", 40, chat)
    assert all(episode.facts["agreed"] for episode in episodes)
    for episode in episodes:
        for turn in episode.turns:
            assert turn.trainable and chat.decode(turn.token_ids) == turn.text
            messages = [*turn.before, {"role": "user", "content": turn.prompt}]
            if not any(t is not turn and t.seat == turn.seat for t in episode.turns):
                assert turn.prompt_ids == chat.ids_of(messages)
    first, answer = (t for t in episodes[0].turns if t.seat == "first")
    assert answer.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids
    assert answer.text == "y" and len(first.text) + 1 == len(first.token_ids)  # and its end
    shown = gather(parts, Path("nowhere"))
    assert shown is not None and len(shown.games["main"]) == 32
    assert len(shown.lessons) == 64  # a conversation for each seat
    assert {lesson.policy for lesson in shown.lessons} == {"main"}


def test_every_other_opponent_of_a_zero_sum_game_is_random_and_not_imitated() -> None:
    parts = parts_of("tictactoe", "begin.main=perfect:1")
    episodes = play_programs(parts, "main", "perfect", 8, Chat(parts.learner.policies.tokenizer))
    seatings = [tuple(e.seating.values()) for e in episodes]
    assert seatings[:4] == [
        ("perfect", "perfect"),
        ("perfect", "random"),
        ("perfect", "perfect"),
        ("random", "perfect"),
    ]
    for turn in (t for e in episodes for t in e.turns):
        assert turn.trainable == (turn.policy == "perfect")


def test_the_rules_alone_are_shown_by_random_play() -> None:
    parts = parts_of("kuhn", "begin.main=random:40")
    shown = gather(parts, Path("nowhere"))
    assert shown is not None
    turns = [turn for episode in shown.games["main"] for turn in episode.turns]
    assert {turn.policy for turn in turns} == {"random"} and len(shown.lessons) == len(turns)
    first = Counter(episode.turns[0].text for episode in shown.games["main"])
    assert len(first) == 2 and min(first.values()) > 8


def test_imitation_is_measured_apart_from_what_self_play_adds(tmp_path: Path) -> None:
    run = tmp_path / "run"
    keys = ("begin.main=perfect:120", "imitation={epochs: 4, batch: 32, lr: 3e-3}")
    keys += ("sampling.mask_actions=false",)  # what is legal is learned, too
    life = train("kuhn", run, *keys, "evaluate.final=16", "iterations=2", "learn.lr=1e-4")
    assert life.code == 0, life.err
    assert re.search(r"imitation first: main perfect:120: \d+ lessons, 4 epochs", life.err)
    assert re.search(r"imitation: epoch 3 of 4, loss [\d.]+, \d+ s, about \d+ s left", life.err)
    line = next(read_lines(run / "metrics.jsonl"))
    assert line["iteration"] == 0 and line["imitation/epochs"] == 4
    key = "eval/kuhn/exploitability"
    assert line[key] < 0.5 < line[f"before_imitation/{key}"]  # legal actions alone are worth that
    losses = [m["learn/nats_per_token"] for m in read_lines(run / FOLDER / "metrics.jsonl")]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 1 < losses[0]
    evaluation = json.loads((run / "evaluation.json").read_text())
    three = [
        evaluation["untrained"]["kuhn"],
        evaluation["kuhn"]["after_imitation"],
        evaluation["kuhn"],
    ]
    untrained, fitted, trained = (one["exact"]["exploitability"] for one in three)
    assert fitted < untrained and trained < untrained and fitted != trained
    assert "perfect:120" in events(run, "imitated")[0]["detail"]
    assert "after imitation" in life.out


MOMENTS = (
    Moment(f"{FOLDER}/.evaluation.json.unfinished", 2),  # before the policy is fitted
    Moment(".step_000002.unfinished/manifest.json"),  # two epochs are over, one has a checkpoint
    Moment(f"{FOLDER}/.evaluation.json.unfinished"),  # after the last epoch
    Moment("000001.jsonl.gz"),
)


@pytest.mark.parametrize("weights", ["full", "lora"])
def test_a_run_that_died_while_it_imitated_equals_one_that_never_did(
    tmp_path: Path, weights: str
) -> None:
    keys = ("begin.main=perfect:24", "iterations=2", f"learn.weights={weights}")
    keys += ("imitation={epochs: 3, batch: 16}", "learn.kl=0.1", "learn.reference=ema")
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    life = train("tictactoe", unbroken, *keys)
    assert life.code == 0, life.err
    for moment in MOMENTS if weights == "full" else MOMENTS[1:2]:
        life = train("tictactoe", broken, *keys, resume=True, die_at=moment)
        assert life.code == -signal.SIGKILL, f"{moment} did not come: {life.out}{life.err}"
    life = train("tictactoe", broken, *keys, resume=True)
    assert life.code == 0, life.err
    lines = facts(unbroken)
    assert [line["iteration"] for line in lines] == [0, 1, 2]
    assert lines == facts(broken)
    assert facts(unbroken / FOLDER) == facts(broken / FOLDER)
    for run in (unbroken, broken):  # iteration 0 has no games
        text = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        (run / "metrics.jsonl").write_text("".join(text[1:]))
    assert whole(broken) == whole(unbroken)
    assert len(events(broken, "imitated")) == 1
    assert not (broken / FOLDER / "checkpoints").exists()  # step 0 has what was fitted


def test_one_of_two_policies_may_imitate(tmp_path: Path) -> None:
    keys = ("players={first: ann, second: ben}", "learn.policies=[ann, ben]")
    life = train("kuhn", tmp_path / "run", *keys, "begin.ann=perfect:8", "iterations=1")
    assert life.code == 0, life.err
    line = facts(tmp_path / "run")[0]
    assert line["iteration"] == 0 and line["imitation/ann/loss"] > 0
    assert "imitation/ben/loss" not in line and line["imitation/lessons"] > 0


def test_demonstrations_of_a_file_are_imitated(tmp_path: Path) -> None:
    file = tmp_path / "shown.jsonl"
    record = {"user_prompt": "J:", "output": "c"}
    file.write_text(f"{json.dumps(record)}\n" * 3)
    parts = parts_of("kuhn", f"begin.main=demonstrations:{file}")
    shown = gather(parts, tmp_path / "run")
    assert shown is not None and [lesson.policy for lesson in shown.lessons] == ["main"] * 3


@pytest.mark.parametrize(
    ("recipe", "overrides", "says"),
    [
        ("kuhn", ["begin.main=scripted:none"], "number of games"),
        ("kuhn", ["begin.main=perfect:0"], "number of games"),
        ("kuhn", ["begin.nobody=perfect:5"], "no policy 'nobody' learns"),
        ("kuhn", ["begin.main=demonstrations:nowhere.jsonl"], "nowhere.jsonl"),
        ("matching-warm", [*MATCHING, "games.matching.style=short", "games.matching.max_tokens=3"],
         "which may say 3 tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_imitated_is_refused_and_nothing_is_written(
    tmp_path: Path, recipe: str, overrides: list[str], says: str
) -> None:
    life = train(recipe, tmp_path / "run", *overrides)
    assert life.code == 2 and says in life.err, life.err
    assert not (tmp_path / "run").exists()


def test_a_game_without_programs_cannot_be_imitated(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text(
        "from sparring import Game\nclass Mute(Game):\n    seats = ('one',)\n"
    )
    keys = ["games={" + f"'{tmp_path}/mute.py:Mute': {{}}" + "}", "begin.main=scripted:2"]
    with pytest.raises(ConfigError, match="has no scripted player"):
        gather(parts_of("kuhn", *keys), tmp_path / "run")


@pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
def test_silence_and_other_seats_are_not_imitated_and_kl_stop_waits_for_samples() -> None:
    parts = parts_of("adversarial", "games.adversarial_tests.program_tokens=40")
    chat = Chat(parts.learner.policies.tokenizer)
    for episode in play_programs(parts, "generator", "perfect", 4, chat):
        assert [t.text for t in episode.turns if t.trainable] == [episode.turns[4].text]
        assert episode.facts["pass_rate"] == 1
    assert parts.config.learn.kl_stop is not None and learn_config(parts.config).kl_stop is None
