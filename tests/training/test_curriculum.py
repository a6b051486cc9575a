"""A curriculum goes to harder options when the last ones go well, and a run that died goes on at
the level it had reached."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from lives import Moment, events, facts, train, whole

from sparring.core.errors import ConfigError
from sparring.run.config import Config, load_recipe
from sparring.run.games import make_games
from sparring.run.rundir import RunDir
from sparring.training.curriculum import Curriculum

LEVELS = "curriculum={matching: {levels: [{size: 2}], above: -9, window: 2}}"


def config_of(levels: str, **more: object) -> Config:
    keys = [f"curriculum={{matching: {{levels: {levels}, measure: wins, above: 0.5, window: 2}}}}"]
    return load_recipe("matching", ["games.matching.style=short", *keys])


def test_a_level_is_passed_when_the_mean_of_the_window_is_reached() -> None:
    config = config_of("[{size: 3}, {size: 4}]")
    curriculum = Curriculum(config, make_games(config.games))
    sizes = []
    for wins in (1.0, None, 0.0, 0.9, 0.2, 0.0, 1.0, 1.0):
        sizes.append(curriculum.games()["matching"].size)
        raised = curriculum.watch({} if wins is None else {"wins": wins})
        assert all("wins" in line for line in raised)
    # (1 + 0) / 2 passes the first, and the next window begins anew: (0.9 + 0.2) / 2.
    assert sizes == [3, 3, 3, 4, 4, 2, 2, 2]
    assert curriculum.metrics() == {"curriculum/matching": 2}
    assert [game.size for game in curriculum.all_games()] == [2, 3, 4]
    assert [curriculum.level("matching", i).size for i in range(4)] == [3, 4, 2, 3]


def test_its_state_is_all_it_needs() -> None:
    config = config_of("[{size: 3}, {size: 4}]")
    one, other = (Curriculum(config, make_games(config.games)) for _ in range(2))
    for wins in (1.0, 1.0, 0.7):
        one.watch({"wins": wins})
    other.load(one.state())
    assert other.games()["matching"].size == 4
    assert one.watch({"wins": 0.4}) == other.watch({"wins": 0.4}) != []


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("curriculum={chess: {levels: [{size: 2}]}}", "no game 'chess'"),
        ("curriculum={matching: {levels: [{sise: 2}]}}", "no option 'sise'"),
        ("curriculum={matching: {levels: []}}", "curriculum.matching.levels"),
        ("curriculum={matching: {levels: [{size: 99}]}}", "size"),
    ],
)
def test_a_level_that_is_no_game_is_refused(key: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_recipe("matching", [key])


def test_a_run_that_died_goes_on_at_its_level(tmp_path: Path) -> None:
    keys = ("begin={}", LEVELS, "collect.group=2", "collect.episodes=4", "iterations=5")
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    life = train("matching-warm", unbroken, *keys)
    assert life.code == 0, life.err
    for moment in (Moment("000003.jsonl.gz"), Moment("000005.jsonl.gz")):
        life = train("matching-warm", broken, *keys, resume=True, die_at=moment)
        assert life.code == -signal.SIGKILL, f"{moment} did not come: {life.out}{life.err}"
    assert train("matching-warm", broken, *keys, resume=True).code == 0
    assert whole(broken) == whole(unbroken)
    assert [line["curriculum/matching"] for line in facts(unbroken)] == [0, 0, 1, 1, 1]
    sizes = [len(RunDir(unbroken).read_episodes(i)[0].task.data["table"]) for i in range(1, 6)]
    assert sizes == [2, 2, 3, 3, 3]
    assert [e["iteration"] for e in events(broken, "curriculum")] == [2]
