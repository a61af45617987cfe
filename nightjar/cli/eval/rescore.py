"""``nightjar eval rescore``: the rubric as it is now over the rollouts of a run as they were.

nightjar eval rescore 0a1b2c3d4e5f
nightjar eval rescore outputs/evals/gsm8k--local/0a1b2c3d4e5f --rubric strict.py:strict_answer
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import typer

from nightjar.cli.eval.arguments import OutputDirOption, RunArgument
from nightjar.cli.eval.options import json_object
from nightjar.cli.eval.running import finish, watched
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.evaluation import Outcome, carry_out, check_warehouse
from nightjar.evaluation.rescoring import load_rescored
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.logs import log_to_stderr
from nightjar.runs import RunDirectory
from nightjar.warehouse import Warehouse, resolve_warehouse


def eval_rescore(
    run: RunArgument,
    rubric: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:NAME",
            help="A rubric, a class of rubrics or a reward function, in place of the environment's rubric.",
        ),
    ] = None,
    env_args: Annotated[
        Any,
        typer.Option(
            "--env-args",
            "-a",
            parser=json_object,
            metavar="JSON",
            help="Arguments of the environment that are other now; the rest is as it was.",
        ),
    ] = None,
    max_concurrent_scoring: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Groups scored at once (default: as many as the run).")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="N|ADDRESS",
            help="Score on N processes of this machine, or on the workers of a Dask scheduler that share its folders.",
        ),
    ] = None,
    output_dir: OutputDirOption = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Score the rollouts of a run with the rubric as it is now, as a new run; no model is asked but judges.

    The run stays as it is. The new one names it, and the hash of the code that scored: both are columns of runs in SQL,
    rescored_from and scoring_hash.

    Example: nightjar eval rescore 0a1b2c --rubric strict.py:strict_answer
    """
    log_to_stderr(verbose)
    location = resolve_warehouse(warehouse)
    target = Warehouse(location)
    if dask:
        if output_dir:
            raise typer.BadParameter("--dask excludes --output-dir: the new run is beside the other")
        settings = {"rubric": rubric, "env_args": env_args, "max_concurrent_scoring": max_concurrent_scoring}
        _rescore_with_dask(find_stored_run(run, warehouse=warehouse).directory, dask, settings, location, as_json)

    async def rescore() -> Outcome:
        check_warehouse(target)
        opened = load_rescored(
            find_stored_run(run, warehouse=warehouse).directory,
            rubric=rubric,
            env_args=env_args,
            max_concurrent_scoring=max_concurrent_scoring,
            output_dir=output_dir,
        )
        return await carry_out(opened, target)

    finish(watched(rescore), as_json)


def _rescore_with_dask(
    source: RunDirectory, cluster: str, settings: Mapping[str, Any], location: str, as_json: bool
) -> NoReturn:
    from nightjar.hosting.dask_rescoring import rescore_with_dask

    check_warehouse(Warehouse(location))
    directory = rescore_with_dask(source, cluster, settings, location)
    told = directory.read_metadata()
    if as_json:
        print_json(told | {"path": str(directory.path)})
    else:
        scored = f"{told['scored']} of {told['rollouts']} rollouts scored, average reward {told['avg_reward']}"
        echo(f"Run {told['run_id']}, {told['status']}: {scored}")
        echo(f"Next: nightjar eval get {told['run_id']}")
    raise typer.Exit(int(told["status"] != "completed"))
