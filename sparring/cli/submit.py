"""`sparring submit`: a recipe as a job of Slurm's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from sparring.cli.arguments import Overrides, folder_option


def submit(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, a YAML file, or FILE.py:CLASS.")],
    overrides: Overrides = None,
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs per node.")] = 0,
    time: Annotated[
        str, typer.Option(help="Time limit of the job until it is requeued, as in sbatch --time.")
    ] = "24:00:00",
    run: Annotated[Path | None, folder_option("The run's folder, on a shared disk.")] = None,
    partition: Annotated[str, typer.Option(help="Slurm's partition.")] = "",
    account: Annotated[str, typer.Option(help="Slurm's account.")] = "",
    cpus: Annotated[
        int, typer.Option(min=0, help="Processor cores per node; 0 leaves it to Slurm.")
    ] = 0,
    launcher: Annotated[
        str | None,
        typer.Option(help="plain, accelerate or ray; chosen by --nodes and --gpus otherwise."),
    ] = None,
    warn_s: Annotated[
        int, typer.Option(min=1, help="Seconds before the time limit at which the run is warned.")
    ] = 300,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="A further #SBATCH option, such as --qos=high; may be repeated."),
    ] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Submit `train --smoke`.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script and submit nothing.")
    ] = False,
) -> None:
    """Submit a recipe to Slurm: it is preempted, requeued and resumed without further help."""
    from sparring.cli.app import default_folder
    from sparring.core.errors import ConfigError, nearest
    from sparring.launch import slurm
    from sparring.run.config import load_recipe

    config = load_recipe(recipe, overrides or [], smoke=smoke)
    chosen = launcher or ("accelerate" if nodes > 1 or gpus > 1 else "plain")
    if chosen not in slurm.LAUNCHERS:
        raise ConfigError(f"there is no launcher {chosen!r}; {nearest(chosen, slurm.LAUNCHERS)}")
    job = slurm.BatchJob(
        recipe=str(Path(recipe).resolve()) if recipe.endswith((".yaml", ".yml")) else recipe,
        run=run or default_folder(config.recipe + ("-smoke" if smoke else ""), False),
        overrides=tuple(overrides or ()), nodes=nodes, gpus=gpus, time=time, partition=partition,
        account=account, cpus=cpus, launcher=cast(slurm.Launcher, chosen), warn_s=warn_s,
        smoke=smoke, more=tuple(sbatch or ()),
    )  # fmt: skip
    slurm.check_recipe(job, config)
    if dry_run:
        slurm.check(job)
        print(slurm.script(job), end="")
        return
    number = slurm.submit(job)
    print(f"job {number}; its log: {job.logs}/{number}.log; the run: {job.run}")
