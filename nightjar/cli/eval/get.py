"""``nightjar eval get``: what a run is, how it stands, and what it came to.

nightjar eval get 0a1b2c3d4e5f
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nightjar.cli.eval.arguments import PrefectUrlOption, RunArgument, next_commands, server_if_any
from nightjar.cli.eval.following import record_of
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.errors import ConfigError, ServiceError
from nightjar.evaluation.failures import advice_line, class_in, recorded_failures
from nightjar.evaluation.stored_runs import StoredRun, find_stored_run
from nightjar.hosting.all_runs import ListedRun
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.hosted_runs import HostedRun, find_hosted_run
from nightjar.hosting.run_logs import LogLine, RunLog
from nightjar.runs import RunDirectory
from nightjar.terminal import harmless

_LABEL_WIDTH = 13
_LOG_LINES = 10


def eval_get(
    run: RunArgument,
    warehouse: WarehouseOption = None,
    prefect_url: PrefectUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run is, how it stands, and what it came to; of one that failed, why, and what to do.

    Example: nightjar eval get 0a1b2c
    """
    api, hosted = (None, None) if warehouse else _hosted(run, prefect_url)
    found = _stored(hosted.run_id if hosted else run, warehouse, is_optional=hosted is not None)
    log = _last_lines(api, hosted) if api and hosted and hosted.failure else []
    if as_json:
        print_json(_record(found, hosted, log))
        return
    for label, text in {**_told(found, hosted), **(_state_of(hosted) if hosted else {})}.items():
        if text:
            echo(f"{label + ':':<{_LABEL_WIDTH}}{harmless(str(text))}")
    if log:
        echo("Log, its end:")
    for line in log:
        echo(harmless(f"  {line}".replace("\n", "\n  ")))
    run_id = found.run_id if found else hosted.run_id if hosted else run
    echo(f"Next: {next_commands(run_id, ('samples', 'view-config') if found else ('logs',))}", err=True)


def _hosted(asked: str, prefect_url: str | None) -> tuple[PrefectApi | None, HostedRun | None]:
    """Returns what a server says of a run; nothing where it does not answer, or does not know it."""
    if (Path(asked) / "metadata.json").is_file():
        asked = str(RunDirectory(Path(asked)).read_metadata().get("flow_run_id") or "")
    try:
        api = server_if_any(prefect_url) if asked else None
        return api, find_hosted_run(api, asked) if api else None
    except ServiceError as error:
        echo(f"Without what Prefect's server knows: {error}", err=True)
        return None, None


def _stored(asked: str, warehouse: str | None, *, is_optional: bool) -> StoredRun | None:
    """Returns a run as it is on disk or in the warehouse; None of one that only a server knows."""
    try:
        return find_stored_run(asked, warehouse=warehouse)
    except ConfigError:
        if is_optional:
            return None
        raise


def _last_lines(api: PrefectApi, run: HostedRun) -> list[LogLine]:
    try:
        return RunLog(api, run.id).tail(_LOG_LINES)
    except ServiceError:
        return []


def _record(found: StoredRun | None, hosted: HostedRun | None, log: Sequence[LogLine]) -> dict[str, Any]:
    on_server = record_of(hosted) | {"log": [str(line) for line in log]} if hosted else None
    own = found.metadata if found else {}
    return {**ListedRun(hosted, found).record(), **own, "on_server": on_server}


def _told(found: StoredRun | None, hosted: HostedRun | None) -> dict[str, Any]:
    if found is not None:
        return _lines(found)
    assert hosted is not None, "it was found somewhere"
    count = hosted.asked("num_examples")
    return {
        "Run": hosted.run_id,
        "Environment": hosted.asked("env_id"),
        "Arguments": _pairs(hosted.asked("env_args")),
        "Model": hosted.asked("model"),
        "Asked for": _moment(hosted.created_at.isoformat()),
        "Rollouts": f"{'all' if count == -1 else count} examples × {hosted.asked('rollouts_per_example')}",
    }


def _state_of(run: HostedRun) -> dict[str, Any]:
    """Returns how it stands on the server, and why it failed."""
    own = {"Flow run": f"{run.name} ({run.id})", "State": run.state}
    if run.failure is None:
        return own
    why = [*(run.message or "nothing was said").splitlines()]
    why += [] if class_in(run.message) else [advice_line(run.failure)]
    return own | {"Failure": run.failure, "Why": f"\n{' ' * _LABEL_WIDTH}".join(why)}


def _lines(run: StoredRun) -> dict[str, Any]:
    told = run.metadata
    return {
        "Run": f"{run.run_id}, {told['status']}",
        "Environment": " ".join(filter(None, (told["env_id"], told.get("env_version")))),
        "Arguments": _pairs(told.get("env_args")),
        "Model": told["model"],
        "Endpoint": told.get("base_url"),
        "Sampling": _pairs(told.get("sampling_args")),
        "Rescored": told.get("rescored_from") and f"from run {told['rescored_from']}",
        "Started": _moment(told.get("started_at")),
        "Finished": _moment(told.get("finished_at")),
        "Runtime": told.get("time_ms") is not None and f"{told['time_ms'] / 1000:,.1f} s",
        "Rollouts": f"{told['num_examples']} examples × {told['rollouts_per_example']} = {told['rollouts']}",
        **(_results(told) if "scored" in told else {}),
        "Cost": run.cost is not None and f"{run.cost:.4f}",
        "Tags": ", ".join(told.get("tags") or ()),
        "Suite": told.get("suite"),
        "Published": _moment(told.get("published_at")) or (run.path is None and run.warehouse.location),
        "Results": run.path,
    }


def _results(told: Mapping[str, Any]) -> dict[str, Any]:
    reward, error = told["avg_reward"], told.get("stderr")
    examples = told.get("error_examples") or {}
    return {
        "Scored": f"{told['scored']}, {told['failed']} failed",
        "Avg reward": reward is not None and f"{reward:.4f}" + ("" if error is None else f" ± {error:.4f}"),
        "Metrics": _numbers(told.get("avg_metrics")),
        "pass@k": _numbers(told.get("pass_at_k")),
        "pass^k": _numbers(told.get("pass_all_k")),
        "Tokens": told.get("usage") and ", ".join(f"{count:,.0f} {name}" for name, count in told["usage"].items()),
        "Stopped by": ", ".join(f"{name} ({count})" for name, count in (told.get("stop_conditions") or {}).items()),
        "Error": told.get("error"),
        "Errors": f"\n{' ' * _LABEL_WIDTH}".join(
            f"{count} × {chain}: {examples.get(chain, '').partition(chr(10))[0]}"
            for chain, count in (told.get("errors") or {}).items()
        ),
        "To do": f"\n{' ' * _LABEL_WIDTH}".join(f"{kind}: {kind.advice}" for kind in recorded_failures(told)),
    }


def _pairs(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in (values or {}).items())


def _numbers(values: Mapping[str, float] | None) -> str:
    return "  ".join(f"{name}: {value:.4g}" for name, value in (values or {}).items())


def _moment(written: str | None) -> str:
    return f"{written[:19].replace('T', ' ')} UTC" if written else ""
