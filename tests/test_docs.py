"""The documentation is run: its games are played and trained, its commands and links exist."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sparring.cli.app import app
from sparring.core.collect import Job, collect
from sparring.core.game import Game, opened
from sparring.core.scripted import ScriptedEngine
from sparring.core.types import Episode, Request
from sparring.judge.sandbox import probe
from sparring.run.config import load_recipe
from sparring.run.games import load_game
from sparring.run.recipes import recipe_names

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
GUIDE = ROOT / "docs" / "write-a-game.md"
# Shrinks a training to seconds without changing what it goes through.
SMALL = ["iterations=2", "collect.episodes=32", "checkpoint.every=1", "evaluate.every=1"]
SMALL += ["evaluate.games=8", "evaluate.final=8", "evaluate.ladder=2"]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(page.read_text()) if kind == language]


def files(page: Path) -> dict[str, str]:
    """The blocks of a page that are whole files: their first line is a comment with the name."""
    named = {}
    for _, text in _BLOCK.findall(page.read_text()):
        first = re.match(r"# ([\w-]+\.(?:py|yaml))\n", text)
        if first:
            named[first[1]] = text
    return named


def commands(page: Path) -> Iterator[list[str]]:
    """Every `sparring …` of a page, in blocks and in running text, as words."""
    text = page.read_text()
    lines = [
        line for kind, block in _BLOCK.findall(text) if kind == "" for line in block.split("\n")
    ]
    lines += re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text))
    for line in lines:
        if re.match(r"sparring [a-z-]", line):
            yield shlex.split(line, comments=True)[1:]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the guide's files, and is the current one."""
    for name, text in files(GUIDE).items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def play(game: Game, scripts: dict[str, Any], games: int = 8) -> list[Episode]:
    """Some games, each seat played by the script of its own name."""
    seating = {seat: seat if seat in scripts else "random" for seat in game.seats}
    jobs = [Job(str(i), "game", game, game.task(i), i, seating) for i in range(games)]

    async def whole() -> list[Episode]:
        async with opened([game], "bubblewrap" if probe().ok else "unsafe"):
            return await collect(jobs, ScriptedEngine(scripts).act)

    return asyncio.run(whole())


def test_the_guide_game_is_trained_and_played_by_the_guides_own_commands(folder: Path) -> None:
    lines = [line.split() for line in "".join(blocks(GUIDE, "")).splitlines()]
    told = [words[1:] for words in lines if words[:1] == ["sparring"]]
    assert [words[0] for words in told] == ["train", "arena", "arena", "report", "play"]
    for words in told:
        extra = SMALL if words[0] == "train" else []
        result = CliRunner().invoke(app, [*words, *extra], input="1\n" * 12)
        assert result.exit_code == 0, f"{words}: {result.output}{result.exception!r}"
    run = folder / "runs" / "nim"
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2
    assert "Nim" in (run / "report.html").read_text()
    assert (run / "ladder.json").exists()


def test_the_guide_game_keeps_its_own_rules(folder: Path) -> None:
    game = load_game("nim.py:Nim", stones=9)
    for episode in play(game, {"first": lambda r: game.perfect(r.view, r.seed)}, games=40):
        pile, taken = episode.task.data["pile"], episode.facts["taken"]
        assert sum(taken) == pile and 1 <= pile <= 9
        assert episode.facts["winner"] == game.seats[(len(taken) - 1) % 2]
        if pile % 4:
            assert episode.rewards == {"first": 1, "second": -1}
    for episode in play(game, {"first": lambda r: "4"}):
        assert episode.rewards == {"first": -1.5, "second": 0.5}
        assert episode.facts["invalid"] == "first"


def test_the_guide_shows_how_to_move_at_the_same_time(folder: Path) -> None:
    readme = next(text for text in blocks(ROOT / "README.md", "python") if "(Game)" in text)
    (folder / "readme.py").write_text(readme)
    for name in ("pennies.py:MatchingPennies", "readme.py:MatchingPennies"):
        game = load_game(name)
        same = play(game, {"even": lambda r: "heads", "odd": lambda r: " heads."})
        unlike = play(game, {"even": lambda r: "heads", "odd": lambda r: "tails"})
        assert {e.rewards["even"] for e in same} == {1} and {e.rewards["odd"] for e in same} == {-1}
        assert {e.rewards["even"] for e in unlike} == {-1}


def test_the_guide_shows_forks_that_share_a_conversation(folder: Path) -> None:
    heard: list[Request] = []

    def guess(request: Request) -> str:
        heard.append(request)
        return "yes" if request.previous is None else "5"

    game = load_game("hints.py:Hints")
    scripts = {"describer": lambda r: "five, to be plain", "guesser": guess}
    episodes = play(game, scripts, games=20)
    for episode in episodes:
        assert episode.rewards["guesser"] == (1 if episode.task.data["number"] == 5 else 0)
        assert len(episode.turns) == 5
    asked = [r for r in heard if r.previous is not None]
    assert len(asked) == 60 and all(r.previous and r.previous.text == "yes" for r in asked)


def test_the_guide_shows_a_judge_whose_verdict_is_kept(folder: Path) -> None:
    game = load_game("doubling.py:Doubling")
    [right] = play(game, {"author": lambda r: "def double(n): return n + n"}, games=1)
    [wrong] = play(game, {"author": lambda r: "def double(n): return 6"}, games=1)
    assert right.rewards == {"author": 1} and right.verdicts[0].status == "pass"
    assert wrong.rewards == {"author": -1} and wrong.facts["end"] == "wrong value"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page: Path) -> None:
    top: Any = typer.main.get_command(app)
    for words in commands(page):
        command, rest = top, list(words)
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            assert rest[0] in command.commands, f"{page.name}: sparring {' '.join(words)}"
            command = command.commands[rest.pop(0)]
        known = {option for p in command.params for option in p.opts} | {"--help"}
        for word in rest:
            option = word.strip("[]").split("=")[0]
            if option.startswith("--"):
                assert option in known, f"{page.name}: sparring {' '.join(words)}"
        if words[0] == "train" and rest and not rest[0].startswith("-"):
            check_training(page, rest)


def check_training(page: Path, words: list[str]) -> None:
    """The recipe exists, and its overrides are keys of a config; capitals stand for anything."""
    recipe = words[0]
    if recipe.isupper() or recipe.endswith(".yaml") or ".py:" in recipe:
        return
    known = recipe.partition(":")[0] in recipe_names()  # `openspiel:GAME` is a recipe with a game
    assert known, f"{page.name}: there is no recipe {recipe}"
    overrides = [w for w in words[1:] if re.match(r"[a-z_.]+=", w) and "…" not in w]
    load_recipe(recipe, overrides)  # an unknown key is an error


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def broken_links(page: Path) -> list[str]:
    """All of them, so that one missing file hides no other."""
    found = []
    for link in _LINK.findall(_BLOCK.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        lost = not target.exists() or (anchor and anchor not in anchors(target))
        if "://" not in link and lost:
            found.append(link)
    return found


def test_a_broken_link_or_anchor_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A head, here\n[a](#a-head-here) [b](#gone) [c](no.md) [d](https://x.org/y)")
    assert broken_links(page) == ["#gone", "no.md"]


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_pages_are_found_and_say_commands() -> None:
    """The checks above would pass on nothing."""
    names = {page.name for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "architecture.md", "spiral.md"} <= names
    said = {words[0] for page in PAGES for words in commands(page)}
    assert {"train", "arena", "play", "report", "doctor", "eval", "judge", "recipes"} <= said
