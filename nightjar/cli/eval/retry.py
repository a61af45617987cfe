"""``nightjar eval retry``: what is owed of a run that has failed, is incomplete or crashed.

nightjar eval retry 0a1b2c3d4e5f
nightjar eval retry 0a1b2c3d4e5f --where "error = 'RateLimitError'"
nightjar eval retry 0a1b2c3d4e5f --class rate-limit
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from nightjar.cli.eval.arguments import RunArgument, next_commands
from nightjar.cli.eval.running import Mode, check, evaluation_of, finish, runner, watched
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.errors import ConfigError
from nightjar.evaluation.failures import FailureClass, class_called
from nightjar.evaluation.stored_runs import StoredRun, find_stored_run
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.hosted_runs import find_hosted_run
from nightjar.hosting.retrying import Retried, flow_run_of, retry, run_dir_of
from nightjar.hosting.server import find_prefect_api
from nightjar.logs import log_to_stderr
from nightjar.runs import new_run_id

_CLASSES = ", ".join(kind.replace(" ", "-") for kind in FailureClass)


def _class_called(name: str) -> FailureClass:
    kind = class_called(name)
    if kind is None:
        raise typer.BadParameter(f"{name!r} is none of {_CLASSES}")
    return kind


def eval_retry(
    run: RunArgument,
    where: Annotated[
        str,
        typer.Option(
            metavar="SQL",
            help="Only the failed rollouts for which this holds, over the columns of rollouts; others stay failed.",
        ),
    ] = "",
    of_class: Annotated[
        FailureClass | None,
        typer.Option("--class", parser=_class_called, metavar="CLASS", help=f"Only those of a class: {_CLASSES}."),
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="In this process, without Prefect, also a run of a deployment.")
    ] = False,
    prefect_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Prefect's server (default: PREFECT_API_URL, Prefect's active profile, or that of 'nightjar up').",
        ),
    ] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Do what is owed of a run that has failed, is incomplete or crashed; nothing is asked twice.

    A run of a deployment is done by a worker, as the same flow run; any other goes on here, as with --resume. RUN may
    be the id of a flow run too.

    Examples: nightjar eval retry 0a1b2c | nightjar eval retry 0a1b2c --where "error = 'RateLimitError'"
    """
    if where and of_class:
        raise typer.BadParameter("--where and --class exclude each other")
    where = where or of_class or ""
    log_to_stderr(verbose)
    api_url = None if direct else find_prefect_api(prefect_url)
    api = PrefectApi(api_url) if api_url else None
    stored, flow_run = _found(run, api, warehouse)
    if api and flow_run and flow_run["deployment_id"]:
        if _is_complete(flow_run, stored):
            echo(f"Run {flow_run['name']!r} ({flow_run['id']}) is complete: nothing is owed.", err=True)
            return
        if where:
            stored = stored or _stored(flow_run, warehouse)
        _show(retry(flow_run, api, where, stored), as_json=as_json)
        return
    run_dir = str(stored.directory.path) if stored else run_dir_of(flow_run or {})
    evaluation = evaluation_of(run_dir, {})
    check([evaluation])
    mode: Mode = "direct" if direct else "auto"
    go_on = runner(mode, resume=run_dir, warehouse=warehouse, prefect_url=prefect_url, where=where)
    finish(watched(lambda: go_on(evaluation.config)), as_json)


def _found(asked: str, api: PrefectApi | None, warehouse: str | None) -> tuple[StoredRun | None, dict[str, Any] | None]:
    """Returns a run as it is stored, and as its server knows it; one of the two may be missing.

    Raises:
        ConfigError: there is no such run, or there are several.
    """
    if api and (flow_run := flow_run_of(asked, api)):
        return None, flow_run
    try:
        stored = find_stored_run(_run_id(asked), warehouse=warehouse)
    except ConfigError:
        if api is None or (hosted := find_hosted_run(api, asked)) is None:
            raise
        return None, flow_run_of(hosted.id, api)
    return stored, flow_run_of(stored.metadata.get("flow_run_id") or "", api) if api else None


def _stored(flow_run: dict[str, Any], warehouse: str | None) -> StoredRun | None:
    """Returns a run as it is stored; None where it is not, here or in the warehouse."""
    try:
        return find_stored_run(new_run_id(UUID(flow_run["id"])), warehouse=warehouse)
    except ConfigError:
        return None


def _run_id(asked: str) -> str:
    """Returns how a run is called of which somebody gives the id of the flow run, or what was asked for."""
    if Path(asked).exists():
        return asked
    try:
        return new_run_id(UUID(asked))
    except ValueError:
        return asked


def _is_complete(flow_run: dict[str, Any], stored: StoredRun | None) -> bool:
    """Says whether nothing is left to do; a run that tolerates failures may be Completed and owe something."""
    has_all: bool = stored is None or stored.metadata.get("scored") == stored.metadata["rollouts"]
    return flow_run["state_type"] == "COMPLETED" and has_all


def _show(retried: Retried, *, as_json: bool) -> None:
    if as_json:
        print_json(retried)
        return
    echo(f"Retried:  {retried.name} ({retried.flow_run_id}), which was {retried.was}; a worker goes on with it")
    echo(f"Prefect:  {retried.page}")
    echo(f"Next:     {next_commands(new_run_id(UUID(retried.flow_run_id)), ('logs', 'get'))}")
