"""``nightjar eval list``, ``get`` and ``view-config``: runs on a Prefect server, on disk and in the warehouse."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest
from textwrap import fill
from typing import Annotated, Any

import typer
from rich.console import Console

from nightjar.cli.eval.flags import command_of
from nightjar.cli.eval.hosted import find_hosted, find_run, next_commands, reasons_of, record_of, server_if_any
from nightjar.cli.options import (
    JsonOption,
    OutputDirOption,
    PageOption,
    PrefectUrlOption,
    RunArgument,
    WarehouseOption,
    option,
)
from nightjar.cli.output import avg_reward, columns, print_json, print_labelled, print_values
from nightjar.cli.terminal import echo
from nightjar.core.failures import recorded_failures, shown_outcomes
from nightjar.core.text import harmless
from nightjar.errors import ServiceError
from nightjar.evaluation.resuming import rescoring_command, saved_config
from nightjar.evaluation.stored_runs import StoredRun, find_stored_run, stored_run, stored_runs
from nightjar.hosting.hosted_runs import (
    STATUSES,
    HostedRun,
    ListedRun,
    hosted_runs,
    joined,
    results_in_other_folders,
    results_of,
)
from nightjar.hosting.run_logs import LogLine, RunLog
from nightjar.hosting.server import PrefectApi
from nightjar.reports.formats import duration, percent
from nightjar.statistics.coverage import LEAST_COVERAGE, has_low_coverage

_NAME = "Environment | model"
_UNLIMITED = 10_000
_WHOLE_WORDS: Any = {
    "initial_indent": "  ",
    "subsequent_indent": "  ",
    "break_long_words": False,
    "break_on_hyphens": False,
}
_HEADINGS = ("Run", "Started", _NAME, "Status", "Type", "Examples", "Average", "Cost")
_LOG_LINES = 10
_LOW_COVERAGE = "*"
_MOST_NAMED = 3


def _known_status(status: str | None) -> str | None:
    if status is not None and not any(fnmatchcase(known, status.lower()) for known in STATUSES):
        raise typer.BadParameter(f"Unknown status {status!r}. Choose one of: {', '.join(STATUSES)}")
    return status


def eval_list(
    env: Annotated[str | None, option("Only runs of this environment; * is a wildcard.", metavar="NAME")] = None,
    model: Annotated[
        str | None, option("Only runs of this model; * is a wildcard.", "--model", "-m", metavar="NAME")
    ] = None,
    status: Annotated[
        str | None, option(f"One of: {', '.join(STATUSES)}; * is a wildcard.", metavar="STATUS", callback=_known_status)
    ] = None,
    limit: Annotated[int, option("Runs per page.", "--limit", "-n", min=1, metavar="N")] = 20,
    page: PageOption = 1,
    output_dir: OutputDirOption = None,
    warehouse: WarehouseOption = None,
    prefect_url: PrefectUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs of the Prefect server, the local disk and the warehouse, newest first.

    Runs of a worker are HOSTED, all others are LOCAL. With --output-dir, only runs in that folder are listed. With
    --warehouse, only runs in that warehouse are listed.

    Examples: nightjar eval list --env gsm8k --status failed | nightjar eval list --model '*mini*' --json
    """
    hosted = [] if output_dir or warehouse else _hosted_runs(prefect_url)
    patterns = {name: pattern for name, pattern in {"env_id": env, "model": model}.items() if pattern is not None}
    stored = stored_runs(output_dir, warehouse)
    stored += results_in_other_folders(hosted, {run.run_id for run in stored})
    found = [run for run in joined(hosted, stored) if _matches(run, patterns, status)]
    found.sort(key=lambda run: run.started_at, reverse=True)
    shown = found[(page - 1) * limit : page * limit]
    if as_json:
        print_json([run.record() for run in shown])
        return
    _print_runs(shown)
    if len(found) > page * limit:
        echo(f"{len(shown)} of {len(found)} runs. More: --page {page + 1}", err=True)
    if low := [run for run in shown if _mark(run)]:
        Console(markup=False, emoji=False, highlight=False).print(_few_scored(low))
    echo("Next: nightjar eval get RUN | nightjar eval samples RUN" if shown else "There are no runs.", err=True)


def _hosted_runs(prefect_url: str | None) -> list[HostedRun]:
    try:
        api = server_if_any(prefect_url)
        return [*hosted_runs(api)] if api else []
    except ServiceError as error:
        echo(f"The runs on the Prefect server are not listed: {error}", err=True)
        return []


def _matches(run: ListedRun, patterns: Mapping[str, str], status: str | None) -> bool:
    states = {run.state.lower(), str(run.value("status"))}
    has_status = status is None or any(fnmatchcase(state, status.lower()) for state in states)
    return has_status and all(fnmatchcase(run.value(name) or "", pattern) for name, pattern in patterns.items())


def _print_runs(runs: Sequence[ListedRun]) -> None:
    """Prints a line per run. On a narrow terminal, leaves out the start, or prints the name on a line of its own."""
    console = Console(markup=False, emoji=False)
    unlimited = console.options.update_width(_UNLIMITED)
    rows = [_cells(run) for run in runs]
    for left_out in ((), ("Started",), (_NAME,), ("Started", _NAME)):
        kept = [heading for heading in _HEADINGS if heading not in left_out]
        table = columns(kept, [[row[heading] for heading in kept] for row in rows], numbers=kept[-3:], folded=())
        if console.measure(table, options=unlimited).maximum <= console.width:
            break
    if _NAME in kept:
        console.print(table)
        return
    table.box = None
    with console.capture() as printed:
        console.print(table)
    for line, row in zip_longest(printed.get().splitlines(), [None, *rows]):
        echo(line if row is None else f"{line}\n{fill(harmless(row[_NAME]), console.width, **_WHOLE_WORDS)}")


def _cells(run: ListedRun) -> dict[str, str]:
    reward, cost = run.value("avg_reward"), run.stored.cost if run.stored else None
    examples = run.value("num_examples")
    return {
        "Run": run.run_id,
        "Started": run.started_at[5:16].replace("T", " "),
        _NAME: f"{run.value('env_id')} | {run.value('model')}",
        "Status": run.state,
        "Type": run.kind,
        "Examples": f"{'all' if examples == -1 else examples} × {run.value('rollouts_per_example')}",
        "Average": "–" if reward is None else f"{reward:.3f}{_mark(run)}",
        "Cost": "–" if cost is None else f"{cost:.2f}",
    }


def _mark(run: ListedRun) -> str:
    """Returns the mark of a run that has ended with too few scored rollouts to be compared with other runs."""
    coverage = run.value("coverage")
    return _LOW_COVERAGE if coverage is not None and has_low_coverage(coverage) else ""


def _few_scored(low: Sequence[ListedRun]) -> str:
    shares = ", ".join(f"{run.run_id} {percent(run.value('coverage'))}" for run in low[:_MOST_NAMED])
    more = f" and {len(low) - _MOST_NAMED} more" if len(low) > _MOST_NAMED else ""
    enough = percent(LEAST_COVERAGE)
    return f"{_LOW_COVERAGE} Not to be ranked, because less than {enough} of the rollouts are scored: {shares}{more}"


def eval_get(
    run: RunArgument,
    warehouse: WarehouseOption = None,
    prefect_url: PrefectUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the settings, status and results of a run. For a failed run, also show the cause and what to do.

    Example: nightjar eval get 0a1b2c
    """
    api, hosted = (None, None) if warehouse else find_hosted(run, prefect_url)
    found = stored_run(hosted.run_id, warehouse) or _results(hosted) if hosted else find_stored_run(run, warehouse)
    log = _last_lines(api, hosted) if api and hosted and hosted.failure else []
    if as_json:
        print_json(_record(found, hosted, log))
        return
    lines = {**_description(found, hosted), **(_server_state(hosted) if hosted else {})}
    print_labelled({label: harmless(str(text)) if text else "" for label, text in lines.items()})
    if log:
        echo("Last lines of its log:")
    for line in log:
        echo(harmless(f"  {line}".replace("\n", "\n  ")))
    run_id = found.run_id if found else hosted.run_id if hosted else run
    commands = ("samples", "view-config") if found else ("logs",)
    echo(f"Next: {next_commands(run_id, commands, prefect_url)}", err=True)


def _results(run: HostedRun) -> StoredRun | None:
    try:
        return results_of(run)
    except ServiceError as error:
        echo(str(error), err=True)
        return None


def _last_lines(api: PrefectApi, run: HostedRun) -> list[LogLine]:
    try:
        return RunLog(api, run.id).tail(_LOG_LINES)
    except ServiceError:
        return []


def _record(found: StoredRun | None, hosted: HostedRun | None, log: Sequence[LogLine]) -> dict[str, Any]:
    on_server = record_of(hosted) | {"log": [str(line) for line in log]} if hosted else None
    own = found.metadata if found else {}
    return {**ListedRun(hosted, found).record(), **own, "on_server": on_server}


def _description(found: StoredRun | None, hosted: HostedRun | None) -> dict[str, Any]:
    if found is not None:
        return _stored_description(found)
    assert hosted is not None, "the run was found on a server"
    count = hosted.requested("num_examples")
    return {
        "Run": hosted.run_id,
        "Environment": hosted.requested("env_id"),
        "Arguments": _pairs(hosted.requested("env_args")),
        "Model": hosted.requested("model"),
        "Submitted": _moment(hosted.created_at.isoformat()),
        "Rollouts": f"{'all' if count == -1 else count} examples × {hosted.requested('rollouts_per_example')}",
    }


def _server_state(run: HostedRun) -> dict[str, Any]:
    state = {"Flow run": f"{run.name} ({run.id})", "State": run.state}
    if run.failure is None:
        return state
    why = [*([] if run.message else ["no message"]), *reasons_of(run)]
    return state | {"Failure": run.failure, "Why": "\n".join(why)}


def _stored_description(run: StoredRun) -> dict[str, Any]:
    values = run.metadata
    return {
        "Run": f"{run.run_id}, {values['status']}",
        "Environment": " ".join(filter(None, (values["env_id"], values.get("env_version")))),
        "Arguments": _pairs(values.get("env_args")),
        "Model": values["model"],
        "Endpoint": values.get("base_url"),
        "Sampling": _pairs(values.get("sampling_args")),
        "Rescored": values.get("rescored_from") and f"from run {values['rescored_from']}",
        "Started": _moment(values.get("started_at")),
        "Finished": _moment(values.get("finished_at")),
        "Runtime": values.get("time_ms") is not None and duration(values["time_ms"] / 1000),
        "Rollouts": f"{values['num_examples']} examples × {values['rollouts_per_example']} = {values['rollouts']}",
        **(_scores(values) if "scored" in values else {}),
        "Cost": run.cost is not None and f"{run.cost:.4f}",
        "Tags": ", ".join(values.get("tags") or ()),
        "Suite": values.get("suite"),
        "Published": _moment(values.get("published_at")) or (run.path is None and run.warehouse.location),
        "Results": run.path,
    }


def _scores(values: Mapping[str, Any]) -> dict[str, Any]:
    reward = values["avg_reward"]
    stops, errors = values.get("stop_conditions") or {}, values.get("errors") or {}
    examples = values.get("error_examples") or {}
    return {
        "Scored": f"{values['scored']}, {values['failed']} failed",
        "Outcomes": shown_outcomes(values.get("outcomes") or {}),
        "Avg reward": reward is not None and avg_reward(reward, values.get("stderr")),
        "Metrics": _numbers(values.get("avg_metrics")),
        "pass@k": _numbers(values.get("pass_at_k")),
        "pass^k": _numbers(values.get("pass_all_k")),
        "Tokens": ", ".join(f"{count:,.0f} {name}" for name, count in (values.get("usage") or {}).items()),
        "Stopped by": ", ".join(f"{name} ({count})" for name, count in stops.items()),
        "Error": values.get("error"),
        "Errors": "\n".join(
            f"{count} × {chain}: {examples.get(chain, '').partition(chr(10))[0]}" for chain, count in errors.items()
        ),
        "To do": "\n".join(f"{kind}: {kind.advice}" for kind in recorded_failures(values)),
    }


def _pairs(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in (values or {}).items())


def _numbers(values: Mapping[str, float] | None) -> str:
    return "  ".join(f"{name}: {value:.4g}" for name, value in (values or {}).items())


def _moment(written: str | None) -> str:
    return f"{written[:19].replace('T', ' ')} UTC" if written else ""


def eval_view_config(
    run: RunArgument,
    warehouse: WarehouseOption = None,
    prefect_url: PrefectUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the configuration of a run, and the command that runs it again.

    Example: nightjar eval view-config 0a1b2c
    """
    directory = find_run(run, warehouse, prefect_url).directory
    config = saved_config(directory)
    command = rescoring_command(directory.read_config()) or command_of(config)
    values = config.model_dump(mode="json")
    if as_json:
        print_json({"config": values, "command": command})
        return
    print_values(values)
    echo(f"\n{harmless(shlex.join(command))}")
