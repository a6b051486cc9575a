"""Commands around policies: fine-tuning, merging, self-play, export, data sets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sparring.cli.arguments import (
    Device,
    GameOfRun,
    GameOptions,
    PolicyToo,
    Processes,
    Resume,
    Seed,
    folder_option,
    number,
    one_policy,
    temperature_option,
)
from sparring.cli.console import AsJson, console, say, show_epoch
from sparring.cli.groups import Commands


def add_commands(commands: Commands) -> None:
    commands.command()(finetune)
    commands.command()(selfplay)
    commands.command()(merge)
    commands.command()(serve)
    export = commands.group("export", "Take a run elsewhere.")
    export.command("verl")(export_verl)
    export.command("games")(export_games)
    export.command("verifiers")(export_verifiers)
    commands.group("data", "Bring data sets onto this machine.").command("save")(save_data)


def finetune(
    model: Annotated[
        str,
        typer.Option(
            "--policy", "--model", help="The base model: nano, smollm2, a folder or a hub name."
        ),
    ],
    data: Annotated[
        Path, typer.Option(help="Lines of {system_prompt, user_prompt, output}, or of games.")
    ],
    out: Annotated[Path, folder_option("The folder to make; a policy from then on.")],
    role: Annotated[str, typer.Option(help="The policy's name, such as alice.")] = "main",
    start: Annotated[
        str | None, typer.Option("--from", help="A run or an adapter to start from.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 3,
    lr: Annotated[float, number("The learning rate.", low=0, above=True)] = 2e-4,
    batch: Annotated[int, typer.Option(min=1, help="Demonstrations per step.")] = 16,
    lora_r: Annotated[int, typer.Option(min=1, help="The adapter's rank.")] = 8,
    lora_alpha: Annotated[int, typer.Option(min=1, help="The adapter's alpha.")] = 16,
    lora_dropout: Annotated[
        float, number("The adapter's dropout.", low=0, high=1, below=True)
    ] = 0.05,
    packing: Annotated[
        bool, typer.Option("--packing", help="Pack several short demonstrations into one row.")
    ] = False,
    template: Annotated[
        str | None, typer.Option(help="A chat template: a file, Jinja, or `plain`.")
    ] = None,
    seed: Seed = 0,
    resume: Resume = False,
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Fine-tune LoRA on demonstrations, with a checkpoint after each epoch."""
    from sparring.core.errors import ConfigError
    from sparring.launch.processes import process_group
    from sparring.learn.demonstrations import read_demonstrations
    from sparring.run.outputs import need_folder
    from sparring.training import finetune as fine_tuning

    with process_group(processes, "auto") as leads:
        if not leads:
            return
        need_folder(out, "--out")
        if not role.isidentifier():
            raise ConfigError(f"the role {role!r} names a policy: letters, digits and underscores")
        demonstrations = read_demonstrations(str(data))
        config = fine_tuning.finetune_config(
            model, epochs=epochs, seed=seed, lr=lr, batch=batch, lora_r=lora_r,
            lora_alpha=lora_alpha, lora_dropout=lora_dropout, packing=packing, template=template,
        )  # fmt: skip
        run = fine_tuning.finetune(
            config, out, demonstrations, name=role, start=start, resume=resume,
            progress=None if as_json else show_epoch,
        )  # fmt: skip
        made = {"policy": f"{out}:{role}", "adapter": str(run.path / "adapter")}
        say({**made, "demonstrations": len(demonstrations), "epochs": epochs}, as_json)


def selfplay(
    game: Annotated[str, typer.Argument(help="The game, such as matching.")],
    options: GameOptions = None,
    policy: Annotated[
        str,
        typer.Option(envvar="MODEL_NAME", help="Any policy, or a program such as scripted."),
    ] = "nano",
    games: Annotated[int, typer.Option(min=1, envvar="NUM_GAMES", help="Number of games.")] = 100,
    temperature: Annotated[
        float, temperature_option("Sampling temperature.", envvar="TEMPERATURE")
    ] = 0.7,
    out: Annotated[Path | None, folder_option("The folder to make; data/NAME otherwise.")] = None,
    name: Annotated[
        str, typer.Option(envvar="EXP_NAME", help="The folder's name in data, without --out.")
    ] = "selfplay_gen",
    group: Annotated[int, typer.Option(min=1, help="Games played on each table.")] = 4,
    grouping: Annotated[
        str, typer.Option(help="Instances that share an index: those of one table, or game.")
    ] = "table",
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Most tokens of a reply; as the run was trained, or 256."),
    ] = None,
    val: Annotated[float, number("Share of tables kept for validation.", low=0, high=0.9)] = 0.1,
    batch: Annotated[int, typer.Option(min=1, help="Games played and recorded together.")] = 64,
    seed: Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume after the last recorded batch of games.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let a policy play itself; write games, training and validation instances into a folder."""
    from sparring.cli.progress import Live
    from sparring.models.trained import game_options, trained_sampling
    from sparring.run.outputs import need_folder
    from sparring.training.selfplay import make_plan, play_plan

    plan = make_plan(
        game, options or [], game_options(game, policy, None), policy=policy, games=games,
        temperature=temperature, group=group, grouping=grouping, val=val,
        max_tokens=max_tokens or trained_sampling(policy).max_tokens,
        batch=batch, seed=seed,
    )  # fmt: skip
    folder = out or Path("data") / name
    need_folder(folder, "--out")
    if as_json:
        say(play_plan(plan, folder, resume=resume), as_json)
        return
    with Live(console, f"{game} · {policy}", games) as live:
        result = play_plan(plan, folder, resume=resume, progress=live)
    say(result, as_json)


def merge(
    policy: Annotated[str, typer.Option(help="RUN, RUN@STEP or a folder with an adapter.")],
    out: Annotated[Path, folder_option("The folder to make, for the merged model.")],
    base: Annotated[str | None, typer.Option(help="Another base model of the same shape.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fold a policy's LoRA into its base model, and check that its logits stay the same."""
    from sparring.models.export import merge as fold
    from sparring.run.outputs import need_folder

    need_folder(out, "--out")
    say(fold(policy, out, base=base), as_json)


def export_verl(
    run: Annotated[Path, typer.Argument(help="A run, or a folder of `sparring selfplay`.")],
    out: Annotated[Path, folder_option("The folder to make.")],
    game: GameOfRun = None,
    as_json: AsJson = False,
) -> None:
    """Write what verl needs to train this on a cluster: data, config, launch script."""
    from sparring.bridges.verl_export import export
    from sparring.run.outputs import need_folder

    need_folder(out, "--out")
    say(export(run, out, game), as_json)


def export_verifiers(
    game: Annotated[str, typer.Argument(help="The game, such as kuhn.")],
    options: GameOptions = None,
    out: Annotated[
        Path | None, folder_option("The folder to make; sparring_GAME otherwise.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a package that verifiers' `vf-eval` plays this game with."""
    from sparring.bridges.verifiers_export import export_game
    from sparring.run.games import parse_options
    from sparring.run.outputs import need_folder

    folder = out or Path(f"sparring_{game.replace(':', '_').replace('/', '_')}")
    chosen = parse_options(options or [])
    need_folder(folder, "--out")
    say(export_game(game, chosen, folder), as_json)


def export_games(as_json: AsJson = False) -> None:
    """List the games that `export verl` takes, and where their rows come from."""
    from sparring.bridges.verl_export import exportable_games

    say(exportable_games(), as_json)


def save_data(
    source: Annotated[str, typer.Argument(help="A hub name, such as openai/gsm8k:main.")],
    out: Annotated[Path, typer.Argument(help="The JSONL file to write.")],
    split: Annotated[str | None, typer.Option(help="One split; all of them otherwise.")] = None,
) -> None:
    """Save a data set of the hub as a file, for machines that cannot reach it."""
    from sparring.run.outputs import need_file
    from sparring.tasks.source import save

    need_file(out, "OUT")
    console.print(f"{save(source, out, split)} rows in {out}", soft_wrap=True, highlight=False)


def serve(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[POLICY]", help="The policy: RUN, RUN@STEP or any other."),
    ] = None,
    policy: PolicyToo = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")
    ] = 8000,
    device: Device = "auto",
    dtype: Annotated[
        str, typer.Option(help="Numbers to compute with: auto, float32 or bfloat16.")
    ] = "auto",
) -> None:
    """Answer OpenAI's HTTP API with a policy: chat, completions, streams, logprobs, token ids."""
    from sparring.core.errors import ConfigError
    from sparring.run.outputs import listen

    try:
        from sparring.engines.serve import serve as answer
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'sparring[serve]'") from error
    name = one_policy(run, policy, "serve")
    listener = listen(host, port)
    address = f"http://{host}:{listener.getsockname()[1]}/v1"
    ready = partial(console.print, f"{address} answers as {name}", soft_wrap=True)
    answer(name, sockets=[listener], device=device, dtype=dtype, ready=ready)
