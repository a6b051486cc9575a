"""Training in rounds: what each leaves behind, that a killed run comes to the same, and that games
on record train by the ratios to whoever played them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lives import Moment, events, sparring, train, whole

from sparring.core.errors import ConfigError
from sparring.core.types import Episode, Task, Turn
from sparring.credit.group_relative import GroupRelative
from sparring.run.config import load_recipe
from sparring.run.rundir import read_lines
from sparring.training.instances import read_parquet

FAST = ("collect.group=4", "collect.episodes=12", "evaluate.games=2")
FILES = {"selfplay_games.jsonl", "train.parquet", "val.parquet", "checkpoint"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six rounds that was never interrupted."""
    folder = tmp_path_factory.mktemp("rounds") / "run"
    life = train("matching", folder, *FAST)
    assert life.code == 0, life.err
    return folder


def test_every_round_leaves_its_games_its_instances_and_a_model(run: Path, tmp_path: Path) -> None:
    assert sorted(p.name for p in run.glob("iter_*")) == [f"iter_{n}" for n in range(1, 7)]
    for folder in run.glob("iter_*"):
        assert {p.name for p in folder.iterdir()} == FILES
        assert len(list(read_lines(folder / "selfplay_games.jsonl"))) == 12
        source, found = read_parquet(folder / "train.parquet")
        assert source.game == "matching" and {one.index for one in found} <= {0, 1}
    words = ["selfplay", "matching", "style=terse", "--games", 2, "--out", "out"]
    life = sparring(*words, "--policy", run / "iter_6" / "checkpoint", cwd=tmp_path)
    assert life.code == 0, life.err  # the checkpoint is a policy


@pytest.mark.parametrize("recipe", ["matching", "matching-smollm2"])
def test_no_recipe_deletes_rounds_by_itself(recipe: str) -> None:
    assert load_recipe(recipe).rounds.keep is None


def test_rounds_are_deleted_where_that_is_asked_for(tmp_path: Path) -> None:
    life = train("matching", tmp_path / "run", *FAST, "iterations=3", "rounds.keep=1")
    assert life.code == 0, life.err
    assert [p.name for p in (tmp_path / "run").glob("iter_*")] == ["iter_3"]


def test_rounds_go_on_counting_when_a_run_is_extended(tmp_path: Path) -> None:
    run = tmp_path / "run"
    keys = (*FAST, "learn.schedule=constant", "learn.entropy_end=null", "evaluate.final=0")
    assert train("matching", run, *keys, "iterations=2").code == 0
    before = files(run)
    life = train("matching", run, *keys, "iterations=3", resume=True)
    assert life.code == 0, life.err
    assert sorted(p.name for p in run.glob("iter_*")) == ["iter_1", "iter_2", "iter_3"]
    assert {name: data for name, data in files(run).items() if "iter_3" not in name} == before
    assert [line["iteration"] for line in read_lines(run / "metrics.jsonl")][-1] == 3


def files(run: Path) -> dict[str, bytes]:
    """What the rounds left, but for what says when it was written."""
    return {str(p.relative_to(run)): p.read_bytes() for p in run.glob("iter_*/**/*") if p.is_file()}


def test_a_run_that_died_often_equals_one_that_never_did(run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "run"
    moments = (
        Moment("iter_1/selfplay_games.jsonl"),  # before the round's games are whole
        Moment("iter_2/checkpoint", 2),  # while its model is written
        Moment("000005.jsonl.gz"),  # the round is done, and not on record
    )
    for moment in moments:
        life = train("matching", broken, *FAST, resume=True, die_at=moment)
        assert life.code == -9, f"{moment} did not come: {life.out}{life.err}"
    assert train("matching", broken, *FAST, resume=True).code == 0
    assert whole(broken) == whole(run) and files(broken) == files(run)
    assert events(broken, "resumed")


def test_the_recipe_in_words_runs_small_too(tmp_path: Path) -> None:
    life = train("matching-smollm2", tmp_path / "run", *FAST, "iterations=1")
    assert life.code == 0, life.err
    assert {p.name for p in (tmp_path / "run" / "iter_1").iterdir()} == FILES


def test_an_adapter_is_left_where_adapters_learn(tmp_path: Path) -> None:
    lora = ("learn.weights=lora", "learn.lora_r=4", "iterations=1")
    life = train("matching", tmp_path / "run", *FAST, *lora)
    assert life.code == 0, life.err
    found = {p.name for p in (tmp_path / "run" / "iter_1" / "checkpoint").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= found


def test_recorded_games_train_and_only_where_rewards_differ(run: Path, tmp_path: Path) -> None:
    recorded = (
        "teach.kind=recorded",
        f"rounds.games={run / 'iter_6'}",
        *("collect.episodes=0", "canary=100", "learn.epochs=1", "iterations=2"),
        f"policy={run / 'iter_5' / 'checkpoint'}",  # whoever played round 6
    )
    life = train("matching", tmp_path / "run", *recorded)
    assert life.code == 0, life.err
    lines = list(read_lines(tmp_path / "run" / "metrics.jsonl"))
    assert [line["recorded/groups"] for line in lines] == [2, 2]
    assert lines[0]["learn/canary"] < 1e-3 < lines[1]["learn/canary"]  # it moves away from them
    assert lines[0]["episodes"] == 0 and lines[0]["learn/grad_norm"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["teach.kind=recorded"], "rounds.games"),
        (["teach.kind=recorded", "rounds.games=nowhere"], "no train.parquet in nowhere"),
        (
            ["teach.kind=recorded", "rounds.games=x", "credit={kind: role_baseline}"],
            "group_relative",
        ),
        (["teach.kind=rouns"], "rounds"),
    ],
)
def test_what_cannot_be_taught_from_is_refused_and_nothing_is_written(
    tmp_path: Path, words: list[str], said: str
) -> None:
    life = sparring("train", "matching", "--smoke", *words, "--run", "run", cwd=tmp_path)
    assert life.code == 2 and said in life.err and "Traceback" not in life.err
    assert not (tmp_path / "run").exists()


def test_the_variables_of_the_source_set_keys_of_the_recipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "NUM_ITERATIONS": "5", "GAMES_PER_ITER": "200", "EPOCHS_PER_ITER": "3",
        "TRAIN_BATCH_SIZE": "128", "MICRO_BATCH_SIZE": "16", "MAX_LENGTH": "9",
        "TEMPERATURE": "0.7", "INITIAL_MODEL": "smollm2",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    config = load_recipe("matching")
    assert (config.iterations, config.collect.episodes, config.learn.epochs) == (5, 200, 3)
    assert (config.learn.batch, config.learn.micro_batch) == (128, 16)
    assert config.games["matching"]["max_length"] == 9
    assert (config.sampling.temperature, config.policy) == (0.7, "smollm2")
    assert load_recipe("matching", ["iterations=7"]).iterations == 7  # what is typed goes first
    assert load_recipe("kuhn").iterations == 250  # no business of another recipe
    monkeypatch.setenv("NUM_ITERATIONS", "many")
    with pytest.raises(ConfigError, match="iterations"):
        load_recipe("matching")


def played(number: int, reward: float) -> Episode:
    turns = [Turn(seat, "main", "?", "!") for seat in ("first", "second")]
    rewards = {"first": reward, "second": reward}
    return Episode(str(number), "matching", Task("t"), 0, "table", turns=turns, rewards=rewards)


def test_both_seats_of_all_games_on_a_table_are_one_group() -> None:
    episodes = [played(0, 1.0), played(1, 0.0)]
    episodes[1].turns.pop()  # one of four perspectives is missing
    together = GroupRelative(together=True).advantages(episodes)
    assert together == [[pytest.approx(1 / 3)] * 2, [pytest.approx(-2 / 3)]]
    apart: list[Any] = GroupRelative().advantages(episodes)
    assert apart == [[0.5, 0.0], [-0.5]]
    alone = GroupRelative(together=True, scale="group").advantages([played(0, 0.8)])
    assert alone == [[0.0, 0.0]]  # the two perspectives of one game never differ


def test_the_report_shows_a_matching_between_its_bounds() -> None:
    from sparring.pipelines.matching.report import section
    from sparring.view.rundata import RunData

    measures = {"score": 0.5, "agreement": 0.75, "agreed_turns": 3.2, "error_rate": 0.1}
    measures |= {f"cells_{k}": 1.0 for k in ("private", "mentioned", "correct", "new", "used")}
    limits = {"bound_random": 0.61, "bound_greedy": 0.77, "bound_pooling": 1.0}
    found = {"matching": {"by_size": {"2": {**measures, **limits}, "8": limits}}}
    found["untrained"] = {"matching": {"by_size": {"2": {**measures, "score": 0.125}}}}
    part = section(RunData("run", Path(), evaluation=json.loads(json.dumps(found))))
    assert part is not None
    page = part.results
    for text in ("2 × 2", "8 × 8", "0.61", "0.77", "0.125", "75 %", "3.2", "1 of 1", "untrained"):
        assert text in page
    assert section(RunData("run", Path(), evaluation={"kuhn": {"random": {}}})) is None
