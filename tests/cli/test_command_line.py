"""What a person types and what comes back, wrong words included."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from lives import COMMAND, SMALL, Life, sparring, train
from typer.main import get_command
from typer.testing import CliRunner

from sparring.cli import app
from sparring.cli.console import show_evaluation
from sparring.cli.doctor import Finding, packages
from sparring.core.errors import ConfigError
from sparring.run.recipes import recipe_names


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of tic-tac-toe, with checkpoints 0, 4, 6 and the best."""
    path = tmp_path_factory.mktemp("cli") / "run"
    life = train("tictactoe", path)
    assert life.code == 0, life.err
    return path


def refused(life: Life, *said: str) -> None:
    """Exit 2, one message, no traceback."""
    assert life.code == 2, (life.out, life.err)
    assert "Traceback" not in life.err
    for words in said:
        assert words in life.err


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("eval gsm8k --policy nano --max-tokens -1", "'--max-tokens': Input should be greater"),
        ("eval gsm8k --policy nanoo", "there is no policy 'nanoo'"),
        ("eval gsm8k", "Missing option '--policy'. See `sparring eval --help`"),
        ("trian kuhn", "No such command 'trian'. Did you mean 'train'? See `sparring --help`"),
        ("train kuhn --resmue", "No such option: --resmue"),
        ("judge python x --sandbox foo", "there is no sandbox 'foo'; there are: bubblewrap"),
        ("serve nowhere --port 0", "there is no policy 'nowhere'"),
        ("tournament perfect random", "random is no run: say which game with --game"),
        ("play kuhn --policy=", "there is no policy ''"),
        ("train kuhn --smoke --run=", "Invalid value for '--run': it is empty; name a folder"),
        ("selfplay kuhn --policy random --out=", "Invalid value for '--out': it is empty"),
    ],
)
def test_what_is_typed_wrongly_is_answered_in_one_line(
    tmp_path: Path, typed: str, line: str
) -> None:
    life = sparring(*typed.split(), cwd=tmp_path)
    refused(life, line)
    assert life.err.count("\n") == 1 and life.err.startswith("sparring: ") and not life.out
    assert list(tmp_path.iterdir()) == []


def test_help_answers_in_half_a_second() -> None:
    # Processor time, not the clock: other tests run beside this one.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"--help took {seconds:.3f} s of processor time")
    assert seconds < 0.8  # about 0.25 s on a quiet machine
    for command in ("train", "play", "arena", "report", "recipes", "doctor"):
        assert re.search(rf"\b{command}\b", found.stdout)


def test_help_of_every_command_imports_nothing_heavy() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from sparring.cli import app\n"
        "for c in ('train', 'play', 'arena', 'report', 'recipes', 'doctor', 'eval'):\n"
        "    assert CliRunner().invoke(app.app, [c, '--help']).exit_code == 0, c\n"
        "print([m for m in ('torch', 'transformers', 'numpy', 'peft') if m in sys.modules])"
    )
    python = str(Path(COMMAND).with_name("python"))
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# What other projects call a thing may be typed as well, behind the word that is ours.
SYNONYMS = {
    "--policy": {"--model", "--checkpoint", "--weights", "--adapter", "--ckpt"},
    "--out": {"--output", "--out-dir", "--output-dir", "--dest"},
    "--sandbox": {"--jail", "--isolation", "--unsafe"},
    "--processes": {"--nproc", "--num-processes", "--learners"},
    "--max-tokens": {"--max-new-tokens", "--length"},
    "--games": {"--episodes", "--count", "--num-games"},
}
UNPLAIN = re.compile(r"\b([Gg]o(es)? on|[Ss]o many that|last good|told|magnet)\b")


def commands_of(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not hasattr(group, "list_commands"):
        yield " ".join(path), group
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        yield from commands_of(group.get_command(context, name), (*path, name))


def test_all_commands_have_one_vocabulary() -> None:
    commands = list(commands_of(get_command(app.app)))
    assert len(commands) > 25
    ours = {other: word for word, others in SYNONYMS.items() for other in others}
    for name, command in commands:
        texts = [command.help or "", *(getattr(p, "help", None) or "" for p in command.params)]
        assert [text for text in texts if UNPLAIN.search(text)] == [], name
        for parameter in command.params:
            words = [*parameter.opts, *parameter.secondary_opts]
            if parameter.param_type_name == "option":
                assert words[0] not in ours, f"{name} {words[0]}: say {ours.get(words[0])}"
                assert not any(word.startswith("--no-no-") for word in words), (name, words)
                # What is off by default is turned on by its name; nothing turns it off.
                assert not parameter.secondary_opts, (name, words)
            for other in set(words) & set(ours):
                assert words[0] == ours[other], (name, words)


def test_every_argument_and_option_says_what_it_is_in_a_sentence() -> None:
    for name, command in commands_of(get_command(app.app)):
        for parameter in command.params:
            text = getattr(parameter, "help", None) or ""
            assert text.endswith(".") and " " in text, (name, parameter.name, text)
            assert not re.match("(Of|As|By|With) ", text), (name, parameter.name, text)


MORE = {"arena": ["--game", "kuhn"], "exploit": ["--game", "kuhn"], "serve": ["--port", "0"]}


@pytest.mark.parametrize("command", ["arena", "exploit", "serve"])
def test_a_policy_may_be_named_as_an_argument_or_an_option(command: str) -> None:
    for words in (["nowhere"], ["--policy", "nowhere"]):
        refusal = CliRunner().invoke(app.app, [command, *words, *MORE[command]]).exception
        assert isinstance(refusal, ConfigError) and "no policy 'nowhere'" in str(refusal)
    for words in ([], ["nano", "--policy", "nano"]):
        refusal = CliRunner().invoke(app.app, [command, *words]).exception
        assert isinstance(refusal, ConfigError) and "name one policy" in str(refusal)


def test_recipes_are_listed_for_people_and_machines() -> None:
    found = CliRunner().invoke(app.app, ["recipes", "--json"])
    listed = json.loads(found.stdout)
    assert list(listed) == recipe_names() and all(listed.values())
    assert {"tictactoe", "kuhn", "negotiation", "spiral"} <= set(listed)
    plain = CliRunner().invoke(app.app, ["recipes"]).stdout
    assert all(name in plain for name in listed)


def no_bfloat16() -> None:
    """Each dtype is tried in a process of its own; tests/learn/test_device.py tries them."""
    from sparring.models import device

    device.dtype_runs = lambda dtype, where: dtype != "bfloat16"


def test_the_doctor_says_what_there_is_and_what_would_add_the_rest(tmp_path: Path) -> None:
    life = sparring("doctor", "--json", cwd=tmp_path, first=no_bfloat16)
    assert life.code == 0, life.err
    found = json.loads(life.out)
    assert found["bfloat16"]["ok"] is False
    assert {"python", "device", "float32", "bfloat16", "sandbox", "wandb", "gguf"} <= set(found)
    assert found["float32"]["ok"] is True and found["python"]["ok"] is True
    for name, finding in found.items():
        assert set(finding) == {"ok", "detail", "add"} and finding["detail"]
        if name not in ("float16", "bfloat16"):  # what a processor cannot do, no command adds
            assert finding["ok"] or finding["add"], name


def test_the_doctor_names_every_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"all", "dev", "docs"}
    extras -= {"equivalence", "serve"}  # its plug-in tries the tools themselves; always installed
    monkeypatch.setattr("sparring.cli.doctor.util.find_spec", lambda name: None)
    adds = [finding.add for finding in packages()]
    assert not [extra for extra in extras if not any(f"[{extra}]" in add for add in adds)]
    assert not [finding for finding in packages() if finding.ok]


def test_the_doctor_speaks_to_people_too(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Finding("ghc", False, "Haskell programs", "apt-get install ghc")
    monkeypatch.setattr("sparring.cli.doctor.examine", lambda: [missing])
    said = CliRunner().invoke(app.app, ["doctor"]).stdout
    assert re.search(r"✗ +ghc +Haskell programs +apt-get install ghc", said)


@pytest.mark.parametrize("against", ["random", "perfect", "RUN@0", "RUN"])
def test_the_arena_counts_every_game(run: Path, tmp_path: Path, against: str) -> None:
    opponent = against.replace("RUN", str(run))
    words = ("arena", run, "--against", opponent, "--games", 9)
    life = sparring(*words, "--json", cwd=tmp_path)
    assert life.code == 0, life.err
    found = json.loads(life.out)
    assert found["games"] == 9 == found["wins"] + found["draws"] + found["losses"]
    assert 0 <= found["invalid"] <= found["losses"] and found["void"] == 0
    if against == "random":
        assert sparring(*words, "--json", cwd=tmp_path).out == life.out
        assert "wins" in sparring(*words, cwd=tmp_path).out


def test_the_arena_refuses_what_it_cannot_seat(run: Path, tmp_path: Path) -> None:
    arena = ("arena", run, "--games", 2, "--against")
    refused(sparring(*arena, "scripted", cwd=tmp_path), "scripted", "tictactoe")
    refused(sparring(*arena, f"{run}@5", cwd=tmp_path), "no checkpoint 5; it has: 0, ")
    refused(sparring(*arena, "perfekt", cwd=tmp_path), "perfekt")
    refused(sparring(*arena, "random", "--game", "ludo", cwd=tmp_path), "no game 'ludo'")
    refused(sparring("arena", "nano", "--against", "random", cwd=tmp_path), "--game")
    assert list(tmp_path.iterdir()) == []


def test_the_report_is_written_again_and_its_path_said(run: Path, tmp_path: Path) -> None:
    (run / "report.html").unlink()
    life = sparring("report", run, cwd=tmp_path)
    assert life.code == 0 and life.out.strip() == str(run / "report.html")
    assert (run / "report.html").stat().st_size > 10_000
    refused(sparring("report", tmp_path, cwd=tmp_path), "holds no run")


def test_a_person_plays_from_the_keyboard(tmp_path: Path) -> None:
    """Against an untrained nano, whose first word is no move: the person, who moved, has won."""
    match = ("play", "tictactoe", "--policy", "nano", "--seed", "0")
    life = sparring(*match, cwd=tmp_path, stdin="5\n" * 9)
    assert life.code == 0, life.err
    assert sparring(*match, cwd=tmp_path, stdin="5\n" * 9).out == life.out
    assert "you are x" in life.out and "x> 5" in life.out and not life.err
    assert ". . .\n. . .\n. . .\n" in life.out
    assert "[0, 1, 2, 3, 4, 5, 6, 7, 8]" in life.out  # the choices, all of them at first
    assert "You won: +0.5 for you, o -1.5" in life.out
    second = sparring(
        *("play", "kuhn", "--policy", "nano", "--seat", "second"), cwd=tmp_path, stdin="c\n" * 3
    )
    assert second.code == 0 and "first> " in second.out and "for you" in second.out
    silent = sparring("play", "tictactoe", "--policy", "nano", cwd=tmp_path)
    assert silent.code == 1 and "input ended before the game did" in silent.err
    wrong = sparring("play", "kuhn", "--policy", "nano", "--seat", "frist", cwd=tmp_path)
    refused(wrong, "did you mean 'first'?")
    refused(sparring("play", "chess", "--policy", "nano", cwd=tmp_path), "no game 'chess'")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tictacto"], "did you mean 'tictactoe'?"),
        (["nowhere.yaml"], "no recipe 'nowhere.yaml'"),
        (["kuhn", "iteratons=3"], "did you mean 'iterations'?"),
        (["kuhn", "learn.lrr=3"], "no key 'learn.lrr'; did you mean 'lr'?"),
        (["kuhn", "mbpp.evry=3"], "did you mean 'every'?"),
        (["kuhn", "learn.lr=fast"], "learn.lr: "),
        (["kuhn", "learn.lr=-1"], "learn.lr: "),
        (["kuhn", "learn.lr={"], "not YAML"),
        (["kuhn", "seed.x=1"], "seed is a value"),
        (["kuhn", "faster"], "write key=value"),
        (["kuhn", "credit.kind=role_baselin"], "role_baseline"),
        (["kuhn", "games.kunh.style=terse"], "did you mean 'kuhn'?"),
        (["kuhn", "games.kuhn.stile=terse"], "did you mean 'style'?"),
        (["kuhn", "players.frist=base"], "did you mean 'first'?"),
        (
            [
                "kuhn",
                "players={first: first, second: second}",
                "opponents={kind: league, mixture: alpharank}",
            ],
            "one policy in all seats",
        ),
        (["kuhn", "opponents={kind: players, population: nowhere}"], "there is no population"),
        (["kuhn", "games={}"], "at least one game"),
        (["kuhn", "policy=nanoo"], "did you mean 'nano'?"),
        (["kuhn", "policy=./no/such/folder"], "no policy './no/such/folder'"),
        (["kuhn", "--smok"], "--smoke"),
        (["kuhn", "--run"], "--run"),
    ],
)
def test_what_is_written_wrongly_is_refused_and_nothing_is_written(
    tmp_path: Path, words: list[str], said: str
) -> None:
    refused(sparring("train", *words, cwd=tmp_path), said)
    assert list(tmp_path.iterdir()) == []


def test_another_config_and_a_run_that_is_there_are_refused(run: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()}

    before = contents()
    refused(train("tictactoe", run), "holds this run already; add --resume")
    other = ("seed=7", "learn.entropy=0.5")
    for resume in (False, True):
        refused(train("tictactoe", run, *other, resume=resume), "learn.entropy, seed differ")
    assert contents() == before


def test_runs_without_a_folder_are_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.default_folder("kuhn", False) == Path("runs/kuhn")
    for name in ("kuhn", "kuhn-3", "kuhn-smoke", "kuhnish-9"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert app.default_folder("kuhn", False) == Path("runs/kuhn-4")
    assert app.default_folder("kuhn", True) == Path("runs/kuhn-3")
    assert app.default_folder("spiral", True) == Path("runs/spiral")
    for i in range(4, 12):
        (tmp_path / "runs" / f"kuhn-{i}").mkdir()
    assert app.default_folder("kuhn", True) == Path("runs/kuhn-11")


def test_a_recipe_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "iterations: 1\npolicy: nano\ngames: {kuhn: {style: terse}}\nlearn: {weights: full}\n"
    )
    life = sparring("train", "mine.yaml", "--smoke", *SMALL, "iterations=1", cwd=tmp_path)
    assert life.code == 0, life.err
    assert (tmp_path / "runs" / "mine-smoke" / "report.html").exists()
    (tmp_path / "bad.yaml").write_text("[1, 2\n")
    refused(sparring("train", "bad.yaml", cwd=tmp_path), "bad.yaml")
    (tmp_path / "list.yaml").write_text("[1, 2]\n")
    refused(sparring("train", "list.yaml", cwd=tmp_path), "list.yaml")


def test_errors_have_their_exit_codes() -> None:
    from sparring.core.errors import ConfigError
    from sparring.learn.learner import CanaryError
    from sparring.run.checkpoint import CheckpointError
    from sparring.run.rundir import RunError

    for kind in (RunError, CheckpointError, CanaryError, OSError):
        assert app.exit_code(kind("x")) == 1
    assert app.exit_code(ConfigError("x")) == 2
    assert app.exit_code(ZeroDivisionError("a bug is shown whole")) is None


def test_the_closing_evaluation_is_shown_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score = {"games": 4, "wins": 3, "draws": 1, "losses": 0, "invalid": 0}
    old = {"random_sampled": score | {"wins": 0, "draws": 0, "losses": 4}}
    results = {"random_sampled": score, "exact": {"regret": 0.02, "illegal_mass": 0.5}, "score": 1}
    evaluation = {"tictactoe": results, "untrained": {"tictactoe": old}}
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    show_evaluation(tmp_path)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "Tic-tac-toe random play, sampled 3 (0) 1 (0) 0 (4) 0 (0)" in lines
    assert "Tic-tac-toe Regret per move 0.02 (–)" in lines
    assert "Tic-tac-toe Probability of an illegal answer 50 % (–)" in lines
