"""The command line. Heavy imports wait inside the commands, so that --help answers at once."""

from __future__ import annotations

import json
import logging
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from sparring.phases.cli import app as math_app
from sparring.run.submit_cli import submit

app = typer.Typer(
    help="Language models that learn by playing each other, under a judge that cannot be "
    "talked round.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
convert_app = typer.Typer(help="Make problems files of other data.", no_args_is_help=True)
app.add_typer(convert_app, name="convert")
judge_app = typer.Typer(help="Use a judge on its own.", no_args_is_help=True)
app.add_typer(judge_app, name="judge")
app.add_typer(math_app, name="math")
app.command()(submit)
export_app = typer.Typer(help="Take a run elsewhere.", no_args_is_help=True)
app.add_typer(export_app, name="export")
console = Console()

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Policy = Annotated[
    str, typer.Option(help="nano, smollm2, a model folder or hub name, RUN or RUN@STEP.")
]


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, or a YAML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    run: Annotated[Path | None, typer.Option(help="The run's folder.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last good checkpoint.")] = False,
    smoke: Annotated[bool, typer.Option(help="Shrink it, whole, to under a minute.")] = False,
    processes: Annotated[
        int, typer.Option(min=1, help="So many that learn, on this machine, one GPU each.")
    ] = 1,
    resume_from: Annotated[
        str | None, typer.Option(help="Go on from this checkpoint of a run: its name or path.")
    ] = None,
) -> None:
    """Train a recipe; resume it; override any key of its config."""
    from sparring.run.config import load_recipe
    from sparring.run.machine import prepare
    from sparring.run.team import help_learn, helps, start_helpers

    config = load_recipe(recipe, overrides or [], smoke=smoke)
    of_checkpoint = Path(resume_from or "").parent  # a path says which run it is of
    if run is None and of_checkpoint.name == "checkpoints":
        run = of_checkpoint.parent
    again = resume or resume_from is not None
    folder = run or default_folder(config.recipe + ("-smoke" if smoke else ""), again)
    if helps():
        help_learn(prepare(config, folder, lambda line: None, resume=again))
        return
    config = prepare(config, folder, show, resume=again)
    start_helpers(processes, config)
    if config.pipeline == "coherent-math":
        train_in_phases(config, folder, resume)
        return
    from sparring.finish import finish
    from sparring.progress import Live
    from sparring.train import train as run_training

    console.print(
        f"{config.recipe}: {config.policy}, seed {config.seed}, into {folder}", soft_wrap=True
    )
    with Live(console, config.recipe, config.iterations) as live:
        run_training(config, folder, resume=resume, resume_at=resume_from, progress=live)
    report_path = finish(folder).resolve()
    show_evaluation(folder)
    console.print("report:")
    print(report_path)  # alone on the last line, for whoever takes it from there


@app.command()
def play(
    game: Annotated[str, typer.Argument(help="The game to play, such as tictactoe.")],
    policy: Policy,
    seat: Annotated[str | None, typer.Option(help="Your seat; the first one otherwise.")] = None,
    style: Annotated[str | None, typer.Option(help="The game's style of prompts.")] = None,
) -> None:
    """Play against a policy in the terminal."""
    import asyncio

    from sparring.collect import Job
    from sparring.collect import play as play_game
    from sparring.games import load_game
    from sparring.nearest import nearest
    from sparring.person import PERSON, with_person
    from sparring.run.config import ConfigError
    from sparring.run.policy import load_player
    from sparring.run.rundir import RunError

    table = load_game(game, **game_options(game, policy, style))
    mine = seat or table.seats[0]
    if mine not in table.seats:
        raise ConfigError(f"{game} has no seat {mine!r}; {nearest(mine, table.seats)}")
    engine, name = load_player(policy)
    seating = {s: PERSON if s == mine else name for s in table.seats}
    seed = secrets.randbits(32)
    speak = with_person(
        engine.act, input, lambda turn: console.print(f"{turn.seat}> {turn.text}", markup=False)
    )
    job = Job("play", game, table, table.task(seed), seed, seating)
    try:
        episode = asyncio.run(play_game(job, speak))
    except EOFError:
        raise RunError("the input ended before the game did") from None
    console.print({"rewards": episode.rewards, **episode.facts})


@app.command()
def arena(
    policy: Annotated[str, typer.Argument(metavar="RUN", help="RUN, RUN@STEP or any policy.")],
    against: Annotated[str, typer.Option(help="random, perfect, scripted, or a policy.")],
    games: Annotated[int, typer.Option(min=1, help="How many games, seats alternating.")] = 100,
    game: Annotated[str | None, typer.Option(help="Which game, if the run has several.")] = None,
    temperature: Annotated[float, typer.Option(min=0, help="0 plays the likeliest action.")] = 0.0,
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Play a policy against another and count the results."""
    import asyncio

    from sparring.curriculum.opponents import PROGRAMS
    from sparring.evaluate.arena import match
    from sparring.evaluate.standard import opponents_of
    from sparring.game import Speak
    from sparring.games import load_game
    from sparring.run.config import ConfigError
    from sparring.run.policy import load_opponent, load_player

    chosen = game or first_game(policy)
    table = load_game(chosen, **game_options(chosen, policy, None))
    opponent = against
    if against in PROGRAMS and against not in opponents_of(table):
        raise ConfigError(f"nobody has written a {against} player for {chosen}")
    engine, name = load_player(policy)
    speak: Speak = engine.act
    if against not in PROGRAMS:
        speak, opponent = load_opponent(engine, against)
    score, _ = asyncio.run(
        match(chosen, table, speak, name, opponent, games, seed=seed, temperature=temperature)
    )
    say(score.as_dict(), as_json)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="The run's folder.")]) -> None:
    """Write a run's report: one HTML file."""
    from sparring.report import write_report
    from sparring.run.rundir import RunDir

    console.print(write_report(RunDir.existing(run).path), soft_wrap=True, highlight=False)


@app.command()
def recipes(as_json: AsJson = False) -> None:
    """List the recipes."""
    from sparring.run.config import RECIPES, recipe_names

    about = {}
    for name in recipe_names():
        lines = (RECIPES / f"{name}.yaml").read_text().splitlines()
        about[name] = lines[0].removeprefix("#").strip() if lines else ""
    say(about, as_json)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can do, and how to add what it cannot."""
    from sparring.doctor import as_json as to_json
    from sparring.doctor import examine

    findings = examine()
    if as_json:
        print(json.dumps(to_json(findings), indent=1))
        return
    table = RichTable(box=None, pad_edge=False)
    for column in ("", "ability", "detail", "to add it"):
        table.add_column(column, overflow="fold")
    for f in findings:
        table.add_row("✓" if f.ok else "✗", f.name, escape(f.detail), escape(f.add))
    console.print(table)


@app.command("eval")
def evaluate_benchmark(
    benchmark: Annotated[str, typer.Argument(help="mbpp, humaneval, gsm8k or gsm8k-platinum.")],
    policy: Policy,
    data: Annotated[
        str | None, typer.Option(help="A JSONL file, dataset folder or hub name.")
    ] = None,
    k: Annotated[str, typer.Option(help="Which pass@k, such as 1,10.")] = "1",
    samples: Annotated[
        int | None, typer.Option(min=1, help="Attempts per problem; gsm8k takes their majority.")
    ] = None,
    problems: Annotated[int | None, typer.Option(help="Only the first so many.")] = None,
    chat: Annotated[bool, typer.Option(help="Ask in chat, without examples.")] = False,
    temperature: float | None = None,
    max_tokens: int = 512,
    seed: int = 0,
    sandbox: Annotated[str, typer.Option(help="bubblewrap, or `unsafe`.")] = "bubblewrap",
    details: Annotated[
        Path | None, typer.Option(help="A file for every attempt, to look at or compare.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a policy on a benchmark; `--policy reference` judges the reference solutions."""
    from sparring.evaluate.cli import eval_benchmark

    code = eval_benchmark(
        benchmark, policy, data, k, as_json, chat=chat, samples=samples, problems=problems,
        temperature=temperature, max_tokens=max_tokens, seed=seed, sandbox=sandbox,
        details_to=details,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="Details of an evaluation of gsm8k.")],
    second: Annotated[Path, typer.Argument(help="Details of another one, on the same questions.")],
    as_json: AsJson = False,
) -> None:
    """Compare two evaluations question by question: McNemar's test and an interval."""
    from sparring.evaluate.paired import compare_files

    say(compare_files(first, second), as_json)


@app.command()
def finetune(
    model: Annotated[
        str, typer.Option(help="The base model: nano, smollm2, a folder, a hub name.")
    ],
    data: Annotated[
        Path, typer.Option(help="Lines of {system_prompt, user_prompt, output}, or of games.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to make; a policy from then on.")],
    role: Annotated[str, typer.Option(help="The policy's name, such as alice.")] = "main",
    start: Annotated[
        str | None, typer.Option("--from", help="A run or an adapter to go on from.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    lr: float = 2e-4,
    batch: Annotated[int, typer.Option(min=1, help="Demonstrations per step.")] = 16,
    lora_r: int = 8,
    lora_alpha: int = 16,
    lora_dropout: float = 0.05,
    seed: int = 0,
    resume: Annotated[bool, typer.Option(help="Go on from the last whole epoch.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune LoRA on demonstrations, with a checkpoint after each epoch."""
    from sparring.learn.cli import finetune_file

    found = finetune_file(
        model, data, out, role=role, start=start, epochs=epochs, resume=resume, seed=seed,
        progress=None if as_json else show_epoch, lr=lr, batch=batch, lora_r=lora_r,
        lora_alpha=lora_alpha, lora_dropout=lora_dropout,
    )  # fmt: skip
    say(found, as_json)


@app.command()
def selfplay(
    game: Annotated[str, typer.Argument(help="The game, such as matching.")],
    options: Annotated[list[str] | None, typer.Argument(metavar="[OPTION=VALUE]...")] = None,
    policy: Annotated[
        str, typer.Option(envvar="MODEL_NAME", help="As everywhere, or a program such as scripted.")
    ] = "nano",
    games: Annotated[int, typer.Option(min=1, envvar="NUM_GAMES")] = 100,
    temperature: Annotated[float, typer.Option(min=0, envvar="TEMPERATURE")] = 0.7,
    out: Annotated[Path | None, typer.Option(help="The folder; data/NAME otherwise.")] = None,
    name: Annotated[str, typer.Option(envvar="EXP_NAME")] = "selfplay_gen",
    group: Annotated[int, typer.Option(min=1, help="Games on each table.")] = 4,
    grouping: Annotated[str, typer.Option(help="What shares an index: table, or game.")] = "table",
    max_tokens: Annotated[int, typer.Option(min=1, help="Of a reply, in the style reason.")] = 256,
    val: Annotated[float, typer.Option(min=0, max=0.9, help="Share of tables kept back.")] = 0.1,
    batch: Annotated[int, typer.Option(min=1, help="Games at once, recorded together.")] = 64,
    seed: int = 0,
    resume: Annotated[bool, typer.Option(help="Go on with the games that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a policy play with itself; games, training and validation instances land in a folder."""
    from sparring.progress import Live
    from sparring.selfplay import generate, make_plan

    plan = make_plan(
        game, options or [], game_options(game, policy, None), policy=policy, games=games,
        temperature=temperature, group=group, grouping=grouping, max_tokens=max_tokens, val=val,
        batch=batch, seed=seed,
    )  # fmt: skip
    folder = out or Path("data") / name
    if as_json:
        say(generate(plan, folder, resume=resume), as_json)
        return
    with Live(console, f"{game} · {policy}", games) as live:
        found = generate(plan, folder, resume=resume, progress=live)
    say(found, as_json)


@export_app.command("verl")
def export_verl(
    run: Annotated[Path, typer.Argument(help="A run, or a folder of `sparring selfplay`.")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    as_json: AsJson = False,
) -> None:
    """Write what verl needs to go on with this on a cluster: data, config, launch script."""
    from sparring.integrations.verl_export import export

    say(export(run, out), as_json)


@app.command()
def merge(
    policy: Annotated[str, typer.Option(help="RUN, RUN@STEP or a folder with an adapter.")],
    out: Annotated[Path, typer.Option(help="The folder for the model.")],
    base: Annotated[str | None, typer.Option(help="Another base of the same shape.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fold a policy's LoRA into its base model, and check that it still speaks the same."""
    from sparring.learn.merge import merge as fold

    say(fold(policy, out, base=base), as_json)


@app.command()
def solve(
    checkpoint: Annotated[str, typer.Option(help="RUN, RUN@STEP, or RUN/checkpoints/NAME.")],
    problem: Annotated[str | None, typer.Option(help="What the function should do.")] = None,
    problem_file: Annotated[Path | None, typer.Option(help="A text file that says it.")] = None,
    problems_file: Annotated[Path | None, typer.Option(help="A problems file: a batch.")] = None,
    signature: Annotated[str | None, typer.Option(help="Such as 'def f(x: int) -> int:'.")] = None,
    tests: Annotated[str | None, typer.Option(help="Asserts, parted by semicolons.")] = None,
    execute_tests: Annotated[bool, typer.Option(help="Run the program on the tests.")] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of each stage.")] = 512,
    temperature: Annotated[float, typer.Option(min=0, help="0: the likeliest token.")] = 0.7,
    top_p: Annotated[float, typer.Option(help="Mass of the tokens that may be drawn.")] = 0.9,
    attempts: Annotated[int, typer.Option(min=1, help="The best by tests, then agreement.")] = 1,
    output: Annotated[Path | None, typer.Option(help="A JSON file for the results.")] = None,
    no_reasoning: Annotated[bool, typer.Option(help="Show only the program.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    sandbox: Annotated[str, typer.Option(help="bubblewrap, or `unsafe`.")] = "bubblewrap",
    seed: int = 0,
) -> None:
    """Solve coding problems with a trained generator, stage by stage."""
    from sparring.run.config import ConfigError
    from sparring.solve_cli import run
    from sparring.types import Sampling

    if not 0 < top_p <= 1:
        raise ConfigError(f"--top-p is {top_p}, and should be above 0 and at most 1")
    run(
        checkpoint, problem=problem, problem_file=problem_file, problems_file=problems_file,
        signature=signature, tests=tests, execute_tests=execute_tests,
        sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens),
        attempts=attempts, output=output, reasoning=not no_reasoning, device=device,
        sandbox=sandbox, seed=seed,
    )  # fmt: skip


@convert_app.command("mbpp")
def convert_mbpp(
    data: Annotated[str, typer.Argument(help="MBPP: a JSONL file, its folder, or a hub name.")],
    out: Annotated[Path, typer.Argument(help="The problems file to write.")],
) -> None:
    """Make a problems file of MBPP's training split."""
    from sparring.tasks.convert import convert_mbpp as convert

    count, left_out = convert(data, out)
    for number, why in left_out.items():
        console.print(f"left out {number}: {why}", soft_wrap=True, highlight=False)
    console.print(f"{count} problems in {out}", soft_wrap=True, highlight=False)


@judge_app.command("python")
def judge_python(
    file: Annotated[Path, typer.Argument(help="Lines of {id, code, tests, entry?, setup?}.")],
    as_json: AsJson = False,
    workers: int | None = None,
    timeout_s: float = 5.0,
    sandbox: Annotated[str, typer.Option(help="bwrap, or `unsafe` in so many words.")] = "bwrap",
) -> None:
    """Judge Python programs by their tests; one verdict line per line, in order."""
    from sparring.judge.cli import judge_python as judge

    raise typer.Exit(judge(file, as_json, workers=workers, timeout_s=timeout_s, sandbox=sandbox))


def train_in_phases(config: Any, folder: Path, resume: bool) -> None:
    from sparring.phases.coherent_math import run_all
    from sparring.report import write_report

    console.print(f"{config.recipe}: {config.policy}, seed {config.seed}, into {folder}")
    run_all(config, folder, resume=resume, say=print)
    console.print("report:")
    print(write_report(folder).resolve())


def show(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def show_epoch(metrics: dict[str, Any]) -> None:
    console.print(
        f"epoch {metrics['iteration']}: loss {metrics['learn/loss']:.4f}, "
        f"{metrics['learn/steps']:.0f} steps, {metrics['tokens_per_s']:,.0f} tokens/s",
        highlight=False,
    )


@judge_app.command("equivalence")
def judge_equivalence(
    file: Annotated[
        Path,
        typer.Argument(help="Lines of {id, language, p, q, function, claim, proof?, input?}."),
    ],
    as_json: AsJson = False,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Of one call.")] = 2.0,
    inputs: Annotated[int, typer.Option(min=0, help="Random ones, beside edge cases.")] = 100,
    crosshair_s: Annotated[
        float, typer.Option(min=0, help="Python: symbolic search; 0 leaves it out.")
    ] = 5.0,
    strict: Annotated[
        bool, typer.Option(help="`not refuted within the budget` is no pass.")
    ] = False,
    sandbox: Annotated[str, typer.Option(help="bwrap, or `unsafe` in so many words.")] = "bwrap",
) -> None:
    """Check claims that programs are equivalent or not; one verdict line per line, in order."""
    from sparring.judge.equivalence_cli import judge_equivalence as judge

    code = judge(
        file, as_json, sandbox=sandbox, timeout_s=timeout_s, inputs=inputs,
        crosshair_s=crosshair_s, strict=strict,
    )  # fmt: skip
    raise typer.Exit(code)


def default_folder(name: str, resume: bool) -> Path:
    """runs/NAME, or the next free NAME-2, NAME-3 …; with --resume, the newest of them."""
    root = Path("runs")
    endings = [p.name.removeprefix(name) for p in root.glob(f"{name}*")]
    taken = [1 for e in endings if not e]
    taken += [int(e[1:]) for e in endings if e[:1] == "-" and e[1:].isdigit()]
    newest = max(taken, default=0)
    number = newest if resume and newest else newest + 1
    return root / (f"{name}-{number}" if number > 1 else name)


def run_config(policy: str) -> Any:
    """The config of the run a policy comes from, or None."""
    from sparring.run.policy import find_trained

    found = find_trained(policy)
    return found.config if found else None


def first_game(policy: str) -> str:
    from sparring.run.config import ConfigError

    config = run_config(policy)
    if config is None:
        raise ConfigError(f"{policy} is no run: say which game with --game")
    return str(next(iter(config.games)))


def game_options(game: str, policy: str, style: str | None) -> dict[str, Any]:
    """The options a policy was trained with; nano reads only the terse style."""
    config = run_config(policy)
    options = dict((config.games.get(game) or {}) if config else {})
    options.pop("weight", None)
    if style or (not options and policy == "nano"):
        options["style"] = style or "terse"
    return options


def show_evaluation(run: Path) -> None:
    """The closing evaluation as a table, where there is one."""
    path = run / "evaluation.json"
    if not path.exists():
        return
    found = json.loads(path.read_text())
    before = found.pop("untrained", {})
    table = RichTable(title="after training (before)", box=None)
    for column in ("game", "against", "wins", "draws", "losses", "invalid"):
        table.add_column(column)
    for game, results in found.items():
        for opponent, score in results.items():
            if isinstance(score, dict) and "games" in score:
                old = before.get(game, {}).get(opponent, {})
                cells = [f"{score[k]} ({old.get(k, '–')})" for k in ("wins", "draws", "losses")]
                table.add_row(game, opponent, *cells, f"{score['invalid']} ({old.get('invalid')})")
        for name, value in results.get("exact", {}).items():
            old_value = before.get(game, {}).get("exact", {}).get(name, float("nan"))
            table.add_row(game, name, f"{value:.4f} ({old_value:.4f})")
    console.print(table)


def say(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
        return
    table = RichTable(box=None, show_header=False, pad_edge=False)
    for key, value in facts.items():
        table.add_row(str(key), str(value))
    console.print(table)


def main() -> None:
    """Entry point: errors that a person can mend are said in one line, without a traceback."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        print(f"sparring: {error}", file=sys.stderr)
        sys.exit(code)


def exit_code(error: Exception) -> int | None:
    """2 for what was asked wrongly, 1 for what went wrong, 75 for what should be resumed, None for
    a bug."""
    wrong = {"ConfigError", "UnknownGame", "ModelMissing", "SandboxMissing", "BadTests"}
    broken = {"RunError", "CheckpointError", "CanaryError"}
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & wrong:
        return 2
    if "Interrupted" in names:
        return 75
    # What the operating system refuses, such as a full disk, is no bug either.
    return 1 if names & broken or isinstance(error, OSError) else None
