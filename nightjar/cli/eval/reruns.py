"""``nightjar eval retry``, ``rescore`` and ``repair``: completes, scores again or repairs an existing run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn
from uuid import UUID

import typer

from nightjar.cli.eval.hosted import next_commands
from nightjar.cli.eval.running import Mode, check, evaluation_of, finish, runner, watched
from nightjar.cli.options import (
    EnvArgsOption,
    JsonOption,
    PrefectUrlOption,
    RunArgument,
    VerboseOption,
    WarehouseOption,
    argument,
    option,
)
from nightjar.cli.output import print_json
from nightjar.cli.terminal import echo
from nightjar.core.failures import FailureClass, RolloutOutcome, class_called
from nightjar.core.files import there_is
from nightjar.core.logs import log_to_stderr
from nightjar.engine.runs import RunDirectory, new_run_id
from nightjar.engine.runs.repair import repair
from nightjar.errors import ConfigError
from nightjar.evaluation import Outcome, check_warehouse, run_stages
from nightjar.evaluation.loading import load_rescored
from nightjar.evaluation.stored_runs import StoredRun, find_stored_run, stored_run
from nightjar.hosting.hosted_runs import Retried, find_hosted_run, flow_run_of, retry, run_dir_of
from nightjar.hosting.server import PrefectApi, find_prefect_api
from nightjar.warehouse import Warehouse, resolve_warehouse

_CLASSES = ", ".join(kind.replace(" ", "-") for kind in FailureClass)


def _parse_class(name: str) -> FailureClass:
    kind = class_called(name)
    if kind is None:
        raise typer.BadParameter(f"Unknown failure class {name!r}. Choose one of: {_CLASSES}")
    return kind


def eval_retry(
    run: RunArgument,
    where: Annotated[str, option("Retry only failed rollouts that meet this condition.", metavar="SQL")] = "",
    of_class: Annotated[
        FailureClass | None,
        option(f"Retry only failures of this class: {_CLASSES}.", "--class", parser=_parse_class, metavar="CLASS"),
    ] = None,
    direct: Annotated[
        bool, option("Resume the run here without Prefect, even if it is a run of a deployment.", "--direct")
    ] = False,
    prefect_url: PrefectUrlOption = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Complete a run that failed, crashed or is incomplete. Finished rollouts are not repeated.

    If the run belongs to a deployment, a worker resumes it in the same flow run. Any other run is resumed on this
    machine, as with --resume. RUN may also be the ID of a flow run.

    Examples: nightjar eval retry 0a1b2c | nightjar eval retry 0a1b2c --where "error = 'RateLimitError'"
    """
    if where and of_class:
        raise typer.BadParameter("--where and --class exclude each other")
    where = where or of_class or ""
    log_to_stderr(verbose)
    api_url = None if direct else find_prefect_api(prefect_url)
    api = PrefectApi(api_url) if api_url else None
    stored, flow_run = _find(run, api, warehouse)
    if api and flow_run and flow_run["deployment_id"]:
        # A Completed run that tolerates failures may have remaining rollouts.
        has_all = stored is None or _is_done(stored.metadata)
        if flow_run["state_type"] == "COMPLETED" and has_all and not where:
            echo(f"Run {flow_run['name']!r} ({flow_run['id']}) is complete: nothing to retry.", err=True)
            return
        if where:
            stored = stored or stored_run(new_run_id(UUID(flow_run["id"])), warehouse)
        _show_retried(retry(flow_run, api, where, stored), as_json=as_json)
        return
    run_dir = str(stored.directory.path) if stored else run_dir_of(flow_run or {})
    evaluation = evaluation_of(run_dir, {})
    check([evaluation])
    mode: Mode = "direct" if direct else "auto"
    resume = runner(mode, resume=run_dir, warehouse=warehouse, prefect_url=prefect_url, where=where)
    finish(watched(lambda: resume(evaluation.config)), as_json)


def _is_done(metadata: Mapping[str, Any]) -> bool:
    """Returns whether no rollout remains. Rollouts that a content filter withheld are repeated only on request."""
    filtered = (metadata.get("outcomes") or {}).get(RolloutOutcome.CONTENT_FILTERED, 0)
    return bool(metadata.get("scored", 0) + filtered == metadata["rollouts"])


def _find(wanted: str, api: PrefectApi | None, warehouse: str | None) -> tuple[StoredRun | None, dict[str, Any] | None]:
    """Returns the stored run and the flow run; one of them may be None. Raises ``ConfigError`` if there is neither."""
    if api and (flow_run := flow_run_of(wanted, api)):
        return None, flow_run
    try:
        stored = find_stored_run(_run_id(wanted), warehouse=warehouse)
    except ConfigError:
        if api is None or (hosted := find_hosted_run(api, wanted)) is None:
            raise
        return None, flow_run_of(hosted.id, api)
    return stored, flow_run_of(stored.metadata.get("flow_run_id") or "", api) if api else None


def _run_id(wanted: str) -> str:
    try:
        return wanted if there_is(wanted) else new_run_id(UUID(wanted))
    except ValueError:
        return wanted


def _show_retried(retried: Retried, *, as_json: bool) -> None:
    if as_json:
        print_json(retried)
        return
    echo(f"Retried:  {retried.name} ({retried.flow_run_id}), which was {retried.was}; a worker resumes it")
    echo(f"Prefect:  {retried.page}")
    echo(f"Next:     {next_commands(new_run_id(UUID(retried.flow_run_id)), ('logs', 'get'))}")


def eval_rescore(
    run: RunArgument,
    rubric: Annotated[
        str | None, option("Rubric or reward function that replaces the environment's rubric.", metavar="FILE:NAME")
    ] = None,
    env_args: EnvArgsOption = None,
    max_concurrent_scoring: Annotated[
        int | None, option("Number of groups scored at once (default: as in the original run).", min=1, metavar="N")
    ] = None,
    dask: Annotated[
        str | None,
        option(
            "Score in N local processes, or on the Dask workers at ADDRESS, which must share this disk.",
            metavar="N|ADDRESS",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None, option("Folder for the new run (default: as the original run).", "--output-dir", "-o")
    ] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Score the rollouts of a run again with the current rubric, as a new run. Judges are the only models called.

    The original run stays unchanged. For the new run, the SQL columns runs.rescored_from and runs.scoring_hash hold the
    ID of the original run and the hash of the code that scored. --env-args changes only the arguments that it names.

    Example: nightjar eval rescore 0a1b2c --rubric strict.py:strict_answer
    """
    log_to_stderr(verbose)
    location = resolve_warehouse(warehouse)
    target = Warehouse(location)
    settings = {"rubric": rubric, "env_args": env_args, "max_concurrent_scoring": max_concurrent_scoring}
    if dask:
        if output_dir:
            raise typer.BadParameter("--dask excludes --output-dir: the new run is written beside the original")
        _rescore_with_dask(find_stored_run(run, warehouse=warehouse).directory, dask, settings, location, as_json)

    async def rescore() -> Outcome:
        check_warehouse(target)
        source = find_stored_run(run, warehouse=warehouse).directory
        return await run_stages(load_rescored(source, output_dir=output_dir, **settings), target)

    outcome = watched(rescore)
    if output_dir is not None:
        from nightjar.cli.eval.exchange import write_bundles

        write_bundles([outcome], output_dir)
    finish(outcome, as_json)


def _rescore_with_dask(
    source: RunDirectory, cluster: str, settings: Mapping[str, Any], location: str, as_json: bool
) -> NoReturn:
    from nightjar.hosting.flow_runs import rescore_with_dask

    check_warehouse(Warehouse(location))
    directory = rescore_with_dask(source, cluster, settings, location)
    metadata = directory.read_metadata()
    if as_json:
        print_json(metadata | {"path": str(directory.path)})
    else:
        rollouts = f"{metadata['scored']} of {metadata['rollouts']} rollouts"
        echo(f"Run {metadata['run_id']}, {metadata['status']}: {rollouts} scored, average {metadata['avg_reward']}")
        echo(f"Next: nightjar eval get {metadata['run_id']}")
    raise typer.Exit(int(metadata["status"] != "completed"))


def eval_repair(run_dir: Annotated[Path, argument("The run directory.")]) -> None:
    """Set damaged parts of a run aside, so that a resume repeats their rollouts.

    The damaged parts are kept beside the run's files, in files that end in .damaged. An undamaged run stays unchanged.
    """
    faults = repair(RunDirectory(run_dir))
    for fault in faults:
        echo(f"Set aside: {fault}")
    if faults:
        echo(f"Next: the command of the run with --resume {shlex.quote(str(run_dir))}")
    else:
        echo("Nothing is damaged.")
