"""The commands beside the loop: benchmarks, fine-tuning, self-play on record, exports, and the
judges on their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparring.cli.arguments import Sandbox, Seed, Temperature, number
from sparring.cli.console import AsJson, Policy, console, say, show_epoch

tools = typer.Typer()
convert_app = typer.Typer(help="Make problems files of other data.", no_args_is_help=True)
tools.add_typer(convert_app, name="convert")
data_app = typer.Typer(help="Bring data sets onto this machine.", no_args_is_help=True)
tools.add_typer(data_app, name="data")
judge_app = typer.Typer(help="Use a judge on its own.", no_args_is_help=True)
tools.add_typer(judge_app, name="judge")
export_app = typer.Typer(help="Take a run elsewhere.", no_args_is_help=True)
tools.add_typer(export_app, name="export")


@tools.command("eval")
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
    problems: Annotated[int | None, typer.Option(min=1, help="Only the first so many.")] = None,
    chat: Annotated[bool, typer.Option(help="Ask in chat, without examples.")] = False,
    temperature: Annotated[
        float | None, number("0 for one sample, 0.8 for several, otherwise.", low=0)
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of a reply.")] = 512,
    seed: Seed = 0,
    sandbox: Sandbox = "bubblewrap",
    details: Annotated[
        Path | None, typer.Option(help="A file for every attempt, to look at or compare.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a policy on a benchmark; `--policy reference` judges the reference solutions."""
    from sparring.cli.evaluate import eval_benchmark
    from sparring.run.outputs import need_file

    if details is not None:
        need_file(details, "--details")
    code = eval_benchmark(
        benchmark, policy, data, k, as_json, chat=chat, samples=samples, problems=problems,
        temperature=temperature, max_tokens=max_tokens, seed=seed, sandbox=sandbox,
        details_to=details,
    )  # fmt: skip
    raise typer.Exit(code)


@tools.command()
def compare(
    first: Annotated[Path, typer.Argument(help="Details of an evaluation of gsm8k.")],
    second: Annotated[Path, typer.Argument(help="Details of another one, on the same questions.")],
    as_json: AsJson = False,
) -> None:
    """Compare two evaluations question by question: McNemar's test and an interval."""
    from sparring.evaluation.paired import compare_files

    say(compare_files(first, second), as_json)


@tools.command()
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
    lr: Annotated[float, number("The learning rate.", low=0, above=True)] = 2e-4,
    batch: Annotated[int, typer.Option(min=1, help="Demonstrations per step.")] = 16,
    lora_r: Annotated[int, typer.Option(min=1, help="The adapter's rank.")] = 8,
    lora_alpha: Annotated[int, typer.Option(min=1)] = 16,
    lora_dropout: Annotated[float, number(low=0, high=1, below=True)] = 0.05,
    packing: Annotated[bool, typer.Option(help="Several short ones in one row.")] = False,
    template: Annotated[
        str | None, typer.Option(help="A chat template: a file, Jinja, or `plain`.")
    ] = None,
    seed: Seed = 0,
    resume: Annotated[bool, typer.Option(help="Go on from the last whole epoch.")] = False,
    processes: Annotated[
        int, typer.Option(min=1, help="So many that learn, on this machine, one GPU each.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Fine-tune LoRA on demonstrations, with a checkpoint after each epoch."""
    from sparring.cli.finetune import finetune_file
    from sparring.launch.processes import together
    from sparring.run.outputs import need_folder

    with together(processes, "auto") as leads:
        if leads:
            need_folder(out, "--out")
            found = finetune_file(
                model, data, out, role=role, start=start, epochs=epochs, resume=resume, seed=seed,
                progress=None if as_json else show_epoch, lr=lr, batch=batch, lora_r=lora_r,
                lora_alpha=lora_alpha, lora_dropout=lora_dropout, packing=packing,
                template=template,
            )  # fmt: skip
            say(found, as_json)


@tools.command()
def selfplay(
    game: Annotated[str, typer.Argument(help="The game, such as matching.")],
    options: Annotated[list[str] | None, typer.Argument(metavar="[OPTION=VALUE]...")] = None,
    policy: Annotated[
        str, typer.Option(envvar="MODEL_NAME", help="As everywhere, or a program such as scripted.")
    ] = "nano",
    games: Annotated[int, typer.Option(min=1, envvar="NUM_GAMES")] = 100,
    temperature: Annotated[float, number(low=0, envvar="TEMPERATURE")] = 0.7,
    out: Annotated[Path | None, typer.Option(help="The folder; data/NAME otherwise.")] = None,
    name: Annotated[str, typer.Option(envvar="EXP_NAME")] = "selfplay_gen",
    group: Annotated[int, typer.Option(min=1, help="Games on each table.")] = 4,
    grouping: Annotated[str, typer.Option(help="What shares an index: table, or game.")] = "table",
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Of a reply; as the run was trained, or 256.")
    ] = None,
    val: Annotated[float, number("Share of tables kept back.", low=0, high=0.9)] = 0.1,
    batch: Annotated[int, typer.Option(min=1, help="Games at once, recorded together.")] = 64,
    seed: Seed = 0,
    resume: Annotated[bool, typer.Option(help="Go on with the games that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a policy play with itself; games, training and validation instances land in a folder."""
    from sparring.cli.progress import Live
    from sparring.models.trained import game_options, trained_sampling
    from sparring.run.outputs import need_folder
    from sparring.training.selfplay import generate, make_plan

    plan = make_plan(
        game, options or [], game_options(game, policy, None), policy=policy, games=games,
        temperature=temperature, group=group, grouping=grouping, val=val,
        max_tokens=max_tokens or trained_sampling(policy).max_tokens,
        batch=batch, seed=seed,
    )  # fmt: skip
    folder = out or Path("data") / name
    need_folder(folder, "--out")
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
    game: Annotated[str | None, typer.Option(help="Which game, if the run has several.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write what verl needs to go on with this on a cluster: data, config, launch script."""
    from sparring.bridges.verl_export import export
    from sparring.run.outputs import need_folder

    need_folder(out, "--out")
    say(export(run, out, game), as_json)


@export_app.command("games")
def export_games(as_json: AsJson = False) -> None:
    """List the games that `export verl` takes, and where their rows come from."""
    from sparring.bridges.verl_export import games_taken

    say(games_taken(), as_json)


@tools.command()
def merge(
    policy: Annotated[str, typer.Option(help="RUN, RUN@STEP or a folder with an adapter.")],
    out: Annotated[Path, typer.Option(help="The folder for the model.")],
    base: Annotated[str | None, typer.Option(help="Another base of the same shape.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fold a policy's LoRA into its base model, and check that it still speaks the same."""
    from sparring.models.merge import merge as fold
    from sparring.run.outputs import need_folder

    need_folder(out, "--out")
    say(fold(policy, out, base=base), as_json)


@tools.command()
def solve(
    checkpoint: Annotated[str, typer.Option(help="RUN, RUN@STEP, or RUN/checkpoints/NAME.")],
    problem: Annotated[str | None, typer.Option(help="What the function should do.")] = None,
    problem_file: Annotated[Path | None, typer.Option(help="A text file that says it.")] = None,
    batch: Annotated[bool, typer.Option(help="Many problems: those of --problems-file.")] = False,
    problems_file: Annotated[Path | None, typer.Option(help="A problems file: a batch.")] = None,
    signature: Annotated[str | None, typer.Option(help="Such as 'def f(x: int) -> int:'.")] = None,
    tests: Annotated[str | None, typer.Option(help="Asserts, parted by semicolons.")] = None,
    execute_tests: Annotated[bool, typer.Option(help="Run the program on the tests.")] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of each stage.")] = 512,
    temperature: Temperature = 0.7,
    top_p: Annotated[
        float, number("Mass of the tokens that may be drawn.", low=0, high=1, above=True)
    ] = 0.9,
    attempts: Annotated[int, typer.Option(min=1, help="The best by tests, then agreement.")] = 1,
    output: Annotated[Path | None, typer.Option(help="A JSON file for the results.")] = None,
    no_reasoning: Annotated[bool, typer.Option(help="Show only the program.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    sandbox: Sandbox = "bubblewrap",
    seed: Seed = 0,
) -> None:
    """Solve coding problems with a trained generator, stage by stage."""
    from sparring.core.errors import ConfigError
    from sparring.core.types import Sampling
    from sparring.pipelines.adversarial.cli import run

    if batch and problems_file is None:
        raise ConfigError("--batch solves many problems: name their file with --problems-file")
    run(
        checkpoint, problem=problem, problem_file=problem_file, problems_file=problems_file,
        signature=signature, tests=tests, execute_tests=execute_tests,
        sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens),
        attempts=attempts, output=output, reasoning=not no_reasoning, device=device,
        sandbox=sandbox, seed=seed,
    )  # fmt: skip


@data_app.command("save")
def save_data(
    source: Annotated[str, typer.Argument(help="A hub name, such as openai/gsm8k:main.")],
    out: Annotated[Path, typer.Argument(help="The JSONL file to write.")],
    split: Annotated[str | None, typer.Option(help="One split; otherwise all of them.")] = None,
) -> None:
    """Save a data set of the hub as a file, for machines that cannot reach it."""
    from sparring.run.outputs import need_file
    from sparring.tasks.hub import save

    need_file(out, "OUT")
    console.print(f"{save(source, out, split)} rows in {out}", soft_wrap=True, highlight=False)


@convert_app.command("mbpp")
def convert_mbpp(
    data: Annotated[str, typer.Argument(help="MBPP: a JSONL file, its folder, or a hub name.")],
    out: Annotated[Path, typer.Argument(help="The problems file to write.")],
) -> None:
    """Make a problems file of MBPP's training split."""
    from sparring.pipelines.adversarial.convert import convert_mbpp as convert
    from sparring.run.outputs import need_file

    need_file(out, "OUT")
    count, left_out = convert(data, out)
    for task, why in left_out.items():
        console.print(f"left out {task}: {why}", soft_wrap=True, highlight=False)
    console.print(f"{count} problems in {out}", soft_wrap=True, highlight=False)


@judge_app.command("python")
def judge_python(
    file: Annotated[Path, typer.Argument(help="JSONL, one problem with a program a line.")],
    as_json: AsJson = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Programs at once.")] = None,
    timeout_s: Annotated[float, number("Of one program.", low=0, high=3600, above=True)] = 5.0,
    sandbox: Sandbox = "bubblewrap",
) -> None:
    """Judge Python programs by their tests; one verdict line per line, in order.

    A line is an object:

    \b
    code        the program
    tests       a text or a list of texts: asserts, or the definition of a check
    entry?      the function under test, or a list of names; check is called with them
    setup?      run before the tests, out of the program's sight
    timeout_s?  seconds for this line, instead of --timeout-s
    id?         comes back in the verdict

    docs/examples/judge.jsonl has a line of each kind.
    """
    from sparring.cli.judge import judge_python as judge

    jail = "unsafe" if sandbox == "unsafe" else "bwrap"
    raise typer.Exit(judge(file, as_json, workers=workers, timeout_s=timeout_s, sandbox=jail))


@judge_app.command("equivalence")
def judge_equivalence(
    file: Annotated[
        Path,
        typer.Argument(help="Lines of {id, language, p, q, function, claim, proof?, input?}."),
    ],
    as_json: AsJson = False,
    timeout_s: Annotated[float, number("Of one call.", low=0.1, high=3600)] = 2.0,
    inputs: Annotated[int, typer.Option(min=0, help="Random ones, beside edge cases.")] = 100,
    crosshair_s: Annotated[
        float, number("Python: symbolic search; 0 leaves it out.", low=0, high=3600)
    ] = 5.0,
    strict: Annotated[
        bool, typer.Option(help="`not refuted within the budget` is no pass.")
    ] = False,
    sandbox: Sandbox = "bubblewrap",
) -> None:
    """Check claims that programs are equivalent or not; one verdict line per line, in order."""
    from sparring.pipelines.equivalence.cli import judge_equivalence as judge

    code = judge(
        file, as_json, sandbox=sandbox, timeout_s=timeout_s, inputs=inputs,
        crosshair_s=crosshair_s, strict=strict,
    )  # fmt: skip
    raise typer.Exit(code)
