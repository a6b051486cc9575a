"""Whatever is typed wrongly ends with exit code 2, a message that names it, and nothing left
behind: no folder, no file, no traceback."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparring.api import load_run
from sparring.cli import app
from sparring.core.errors import ConfigError
from sparring.run.outputs import need_file, need_folder
from sparring.run.players import check_players
from sparring.run.rundir import RunDir, read_lines

SMALL = (
    *("iterations=1", "collect.episodes=4", "evaluate.games=2", "evaluate.final=0"),
    *("evaluate.ladder=0", "tracking.tensorboard=false"),
)


def sparring(*words: object, stdin: str = "") -> tuple[int, str]:
    """What a command does, in this process: its exit code and all it says. A bug is raised."""
    result = CliRunner().invoke(app.app, [str(word) for word in words], input=stdin)
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, result.output
    code = app.exit_code(result.exception)
    if code is None:
        raise result.exception
    return code, f"{result.output}\nsparring: {result.exception}"


def refused(said: str, *words: object) -> None:
    code, output = sparring(*words)
    assert code == 2, f"{words}: exit {code}\n{output}"
    assert said in " ".join(output.split()), output


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one iteration, to be copied and damaged."""
    run = tmp_path_factory.mktemp("finished") / "run"
    code, output = sparring("train", "kuhn", "--smoke", "--run", run, *SMALL)
    assert code == 0, output
    return run


@pytest.fixture
def run(finished: Path, here: Path) -> Path:
    return Path(shutil.copytree(finished, here / "run", symlinks=True))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("games.kuhn.invalid=abc", "kuhn.invalid: "),
        ("games.kuhn.weight=-1", "weight"),
        ("games.kuhn.weight=often", "weight"),
        ("engine.device=tpu", "engine.device: 'tpu' is none of auto, cpu, cuda"),
        ("engine.dtype=float8", "engine.dtype: "),
        (
            "sampling.temperature=1e-40",
            "sampling.temperature: Value error, temperature must be 0 or at least",
        ),
        (
            "evaluate.temperature=1e-9",
            "evaluate.temperature: Value error, temperature must be 0 or at least",
        ),
        ("iterations=yes", "not true or false"),
        ("collect.episodes=0", "without games there is nothing to learn from"),
        ("tictactoe.opening=3", "games.tictactoe.OPTION=VALUE"),
        ("learn.lr=.nan", "learn.lr: "),
        ("learn.lr=.inf", "learn.lr: "),
        ("learn.betas=[0.9, 1.5]", "learn.betas"),
        ("mbpp.k=[0]", "mbpp.k"),
        ("seed=-1", "seed: "),
        ("recipe=../elsewhere", "recipe: "),
        ("collect.episodes=2026-99-99", "not YAML"),
        ("players.second=bse", "did you mean 'base'?"),
        ("players.second=minimax", "there are: base, main, perfect"),
        ("players.second=alice", "(learn.policies=[alice])"),
        ("players.second=perfct", "did you mean 'perfect'?"),
        ("players.second=runs/kuhn", "RUN@STEP"),
        ("opponents={kind: players, players: [rndom]}", "did you mean 'random'?"),
    ],
)
def test_an_override_of_another_type_or_out_of_range(here: Path, override: str, said: str) -> None:
    refused(said, "train", "kuhn", override)
    refused(said, "submit", "kuhn", override, "--dry-run")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("--problems", ("eval", "mbpp", "--policy", "reference", "--problems", "-2")),
        ("--temperature", ("eval", "mbpp", "--policy", "nano", "--temperature", "-1")),
        ("--temperature", ("eval", "mbpp", "--policy", "nano", "--temperature", "nan")),
        ("at least 1e-06", ("eval", "mbpp", "--policy", "nano", "--temperature", "1e-40")),
        ("--temperature", ("eval", "mbpp", "--policy", "nano", "--temperature", "warm")),
        ("--max-tokens", ("eval", "mbpp", "--policy", "nano", "--max-tokens", "0")),
        ("--max-tokens", ("eval", "gsm8k", "--policy", "nano", "--max-tokens", "-1")),
        ("no sandbox 'foo'", ("eval", "mbpp", "--policy", "nano", "--sandbox", "foo")),
        ("pass@k", ("eval", "gsm8k", "--policy", "nano", "--k", "10")),
        ("--seed", ("eval", "mbpp", "--policy", "nano", "--seed", "-1")),
        ("--workers", ("judge", "python", "x.jsonl", "--workers", "-1")),
        ("--timeout-s", ("judge", "python", "x.jsonl", "--timeout-s", "-1")),
        ("--timeout-s", ("judge", "python", "x.jsonl", "--timeout-s", "inf")),
        ("no sandbox 'jail'", ("judge", "equivalence", "x.jsonl", "--sandbox", "jail")),
        ("--crosshair-paths", ("judge", "equivalence", "x.jsonl", "--crosshair-paths", "nan")),
        ("--top-p", ("solve", "--checkpoint", "r", "--problem", "p", "--top-p", "0")),
        ("--val", ("selfplay", "kuhn", "--val", "nan")),
        ("--lr", ("finetune", "--model", "nano", "--data", "d", "--out", "o", "--lr", "0")),
        ("no GPU", ("solve", "--checkpoint", "nano", "--problem", "p", "--device", "cuda")),
        ("auto, cpu", ("solve", "--checkpoint", "nano", "--problem", "p", "--device", "tpu")),
        ("tictactoe.opening", ("selfplay", "tictactoe", "opening=-4")),
        ("not YAML", ("selfplay", "tictactoe", "opening={")),
    ],
)
def test_an_option_of_another_type_or_out_of_range(
    here: Path, said: str, words: Sequence[str]
) -> None:
    refused(said, *words)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("word", ["bubblewrap", "bwrap"])
def test_the_jail_goes_by_either_name(here: Path, word: str) -> None:
    Path("one.jsonl").write_text(json.dumps({"id": 1, "code": "x = 1", "tests": "assert x == 1"}))
    code, output = sparring("judge", "python", "one.jsonl", "--sandbox", word)
    assert (code == 0 and "pass" in output) or "bubblewrap" in output, output


@pytest.mark.parametrize("variable", ["MBPP_EVAL_NUM_QUESTIONS", "MBPP_DATASET_PATH"])
def test_a_variable_that_is_no_yaml(
    here: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "{")
    refused(variable, "train", "grpo-code-game", "--smoke")
    monkeypatch.setenv("MAX_LENGTH", "[")
    refused("MAX_LENGTH", "selfplay", "matching", "--policy", "scripted")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["games: [", "5\n", "iterations: many\n", "", b"\xff\xfe", "games: {chess: {}}\n"]
)
def test_a_damaged_config_is_named_whoever_reads_it(run: Path, text: str | bytes) -> None:
    (run / "config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    kept = sorted(p.name for p in run.iterdir())
    assert sparring("report", run)[0] in (0, 2)  # it shows what there is
    for words in (
        ("arena", run, "--against", "random"),
        ("train", "kuhn", "--smoke", "--run", run, "--resume", *SMALL),
        ("export", "verl", run, "--out", "verl"),
    ):
        refused("config.yaml is damaged", *words)
    assert sorted(p.name for p in run.iterdir()) == kept and not Path("verl").exists()


@pytest.mark.parametrize(
    "line", ["{oops\n", "[1]\n", "7\n", '{"score": 1}\n', '{"iteration": "1"}\n']
)
def test_a_bad_line_inside_the_metrics_is_named(run: Path, line: str) -> None:
    path = run / "metrics.jsonl"
    path.write_text(line + path.read_text())
    refused("line 1 of", "train", "kuhn", "--smoke", "--run", run, "--resume", *SMALL)
    path.write_text(path.read_text().removeprefix(line) + "torn in tw")
    assert [m["iteration"] for m in read_lines(path)] == [1]


def test_damaged_files_of_a_run_are_named_whoever_reads_them(here: Path, run: Path) -> None:
    events, games = run / "events.jsonl", run / "episodes" / "000001.jsonl.gz"
    events.write_text('{"event": "x"}\n')
    refused("line 1 of", "train", "kuhn", "--smoke", "--run", run, "--resume", *SMALL)
    events.unlink()
    whole = games.read_bytes()
    for damage in (whole[: len(whole) // 2], b"no gzip", gzip.compress(b"{}\n")):
        games.write_bytes(damage)
        with pytest.raises(ConfigError, match=r"000001\.jsonl\.gz is damaged"):
            RunDir.existing(run).read_episodes(1)
    (run / "evaluation.json").write_text("{oops")
    with pytest.raises(ConfigError, match=r"evaluation\.json is damaged"):
        load_run(run).evaluation()
    for name, words in (
        ("selfplay.json", ("selfplay", "kuhn", "--policy", "random", "--games", 2, "--resume")),
        ("adapter_config.json", ("arena", "folder", "--against", "random", "--game", "kuhn")),
    ):
        Path("folder").mkdir(exist_ok=True)
        Path("folder", "adapter_model.safetensors").write_bytes(b"")
        Path("folder", name).write_text("{oops")
        refused(f"{name} is damaged", *words, *(("--out", "folder") if "--resume" in words else ()))
        Path("folder", name).unlink()


def test_a_checkpoint_that_is_not_there_makes_no_folder(here: Path, run: Path) -> None:
    for where in ("new", "runs/deep/new"):
        words = ("train", "kuhn", "--smoke", "--run", where, "--resume-from", "step_000009")
        refused("no such checkpoint", *words, *SMALL)
    refused("no such checkpoint", "train", "kuhn", "--smoke", "--resume-from", "x/checkpoints/9")
    assert [p.name for p in here.iterdir()] == ["run"]


@pytest.mark.parametrize("bad", ["file", "file/below", "n" * 300, "/proc/none/such"])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    here: Path, finished: Path, bad: str
) -> None:
    Path("file").write_text("kept")
    Path("data.jsonl").write_text(json.dumps({"user_prompt": "a", "output": "b"}) + "\n")
    file = bad if bad != "file" else "folder"
    Path("folder").mkdir()
    for words in (
        ("train", "kuhn", "--smoke", "--run", bad, *SMALL),
        ("selfplay", "kuhn", "--policy", "random", "--games", "2", "--out", bad),
        ("finetune", "--model", "nano", "--data", "data.jsonl", "--out", bad),
        ("merge", "--policy", finished, "--out", bad),
        ("export", "verl", finished, "--out", bad),
        ("eval", "gsm8k", "--policy", "nano", "--details", file),
        ("math", "sft", "--smoke", "--out", bad if bad != "file" else "file/below"),
    ):
        code, output = sparring(*words)
        assert code == 2, f"{words}: {output}"
    assert Path("file").read_text() == "kept"
    assert sorted(p.name for p in here.iterdir()) == ["data.jsonl", "file", "folder"]


def test_trying_an_output_leaves_no_trace(here: Path) -> None:
    need_folder(Path("a/b/c"), "--run")
    need_file(Path("a/b/c.json"), "--output")
    assert list(here.iterdir()) == []
    Path("kept.json").write_text("{}")
    need_file(Path("kept.json"), "--output")
    assert Path("kept.json").read_text() == "{}"
    with pytest.raises(ConfigError, match="is a file, and a folder is wanted"):
        need_folder(Path("kept.json"), "--run")


def test_nothing_is_compared_in_groups_of_one(here: Path) -> None:
    for kind in ("group_relative", "leave_one_out"):
        refused("collect.group is 1", "train", "kuhn", "--smoke", f"credit.kind={kind}")
    assert list(here.iterdir()) == []


def test_recorded_games_need_no_further_word(here: Path) -> None:
    """Nothing is played beside them, and no engine is blamed for who spoke long ago: here a nano of
    another seed."""
    code, output = sparring(
        "selfplay", "kuhn", "--policy", "nano", "--games", "8", "--out", "games"
    )
    assert code == 0, output
    teach = ("teach.kind=recorded", "rounds.games=games", "credit={kind: group_relative}", "seed=5")
    code, output = sparring("train", "kuhn", "--smoke", "--run", "run", *teach, *SMALL)
    assert code == 0, output
    lines = list(read_lines(Path("run/metrics.jsonl")))
    assert all(line["recorded/instances"] > 0 for line in lines if line["iteration"])
    assert RunDir.existing(Path("run")).config().collect.episodes == 0


def test_recorded_games_of_truncated_draws_are_not_learned_from(here: Path) -> None:
    greedy = ("--temperature", "0", "--games", "4", "--out", "games")
    code, output = sparring("selfplay", "kuhn", "--policy", "nano", *greedy)
    assert code == 0, output
    teach = ("teach.kind=recorded", "rounds.games=games", "credit={kind: group_relative}")
    words = ("train", "kuhn", "--smoke", "--run", "run", *teach, *SMALL)
    refused("were drawn with top_p, top_k or temperature 0", *words)
    assert not Path("run").exists()


def test_a_dtype_that_the_cpu_cannot_multiply_in(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparring.models.device.dtype_runs", lambda dtype, device: False)
    refused("bfloat16", "train", "kuhn", "--smoke", "engine.dtype=bfloat16")
    assert list(here.iterdir()) == []


def test_names_of_players_that_mean_somebody_are_left_alone() -> None:
    names = {
        "alice": "alice",
        "b": "ben",
        "c": "main",
        "d": "base",
        "e": "runs/x@3",
        "f": "gpt@http://h",
    }
    check_players(names, ["random", "alice", "runs/y@1"], {"rival", "ben"})
    with pytest.raises(ConfigError, match=r"no player is called 'alce'; did you mean 'alice'\?"):
        check_players(names, ["alce"], {"ben"})


@pytest.mark.parametrize(
    "words",
    [
        ("exploit", "runs/kuhm"),
        ("arena", "runs/kuhm"),
        ("play", "kuhn", "--policy", "runs/kuhm"),
        ("tournament", "runs/kuhm", "nano"),
        ("report", "runs/kuhm"),
        ("view", "runs/kuhm"),
    ],
    ids=" ".join,
)
def test_a_mistyped_run_is_answered_with_the_nearest(here: Path, words: Sequence[str]) -> None:
    (here / "runs" / "kuhn").mkdir(parents=True)
    (here / "runs" / "kuhn" / "config.yaml").touch()
    refused("did you mean 'runs/kuhn'?", *words)
