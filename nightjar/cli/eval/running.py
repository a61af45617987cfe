"""Runs evaluations from the command line with a display and limited memory, and prints how they ended."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import psutil
import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nightjar.cli.eval.live import Style, display, page_in_prefect
from nightjar.cli.output import avg_reward, columns, print_labelled
from nightjar.cli.terminal import echo
from nightjar.core.calling import leave_threads_behind
from nightjar.core.failures import FailureClass, advice_line, shown_outcomes
from nightjar.core.secrecy import hidden_in_prints
from nightjar.core.text import counted, harmless, money
from nightjar.engine.runs import RunDirectory
from nightjar.errors import ConfigError, RunError
from nightjar.evaluation import (
    EndedEvaluation,
    Outcome,
    check_engines,
    check_environments,
    check_named_keys,
    check_warehouse,
    evaluate,
    evaluate_together,
    heartbeats,
    stopped_by_signals,
    within_budget,
)
from nightjar.evaluation.config import Evaluation, RunConfig
from nightjar.evaluation.config.precedence import FLAG
from nightjar.evaluation.resuming import saved_config
from nightjar.hosting.flow_runs import evaluate_as_flow
from nightjar.hosting.server import find_prefect_api
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.location import refuse_secret, shown

T = TypeVar("T")
Mode: TypeAlias = Literal["auto", "prefect", "direct"]
_MEMORY_VARIABLE = "NIGHTJAR_MEMORY_LIMIT"
"""The variable for the limit in gigabytes, such as ``0.5``, or ``none``. Default: nine tenths of the free memory."""

_FREE_SHARE = 0.9
_MOST_RANKED = 3
"""The number of environments of a suite whose leaderboards are named after the run."""
_CGROUP = Path("/sys/fs/cgroup")
_GIGABYTE = 1e9
_MOST_GIGABYTES = 1e9


def runner(
    mode: Mode,
    output_dir: Path | None = None,
    resume: str | None = None,
    warehouse: str | None = None,
    prefect_url: str | None = None,
    where: str = "",
) -> Callable[[RunConfig], Awaitable[Outcome]]:
    """Mode ``auto`` uses Prefect if a server responds."""
    limit_memory()
    location = resolve_warehouse(warehouse)
    api_url = None if mode == "direct" else find_prefect_api(prefect_url)
    target = Warehouse(location)

    async def run_as_flow(config: RunConfig) -> Outcome:
        check_warehouse(target)
        if location != resolve_warehouse():
            refuse_secret(location)
        return await evaluate_as_flow(config, location, output_dir, resume, api_url, where)

    if mode == "prefect" or api_url is not None:
        return run_as_flow
    if mode == "auto":
        echo("No Prefect server is configured or was started by 'nightjar up': running in this process.", err=True)
    return lambda config: evaluate(config, warehouse=target, output_dir=output_dir, resume=resume, where=where)


def watched(evaluation: Callable[[], Awaitable[T]], style: Style = "auto", heartbeat_url: str | None = None) -> T:
    async def body() -> T:
        with hidden_in_prints():
            async with display(style), stopped_by_signals(), heartbeats(heartbeat_url):
                try:
                    return await evaluation()
                finally:
                    leave_threads_behind()

    try:
        return asyncio.run(body())
    except (asyncio.CancelledError, KeyboardInterrupt):
        echo("Stopped. To resume, run the same command with --resume.", err=True)
        raise typer.Exit(130) from None


def check(evaluations: Sequence[Evaluation]) -> None:
    """Checks that environments, engines and the variables named for API keys are available."""
    configs = [evaluation.config for evaluation in evaluations]
    check_environments(configs)
    check_engines(configs)
    check_named_keys(evaluations)


def evaluation_of(run_dir: str, changes: Mapping[str, Any]) -> Evaluation:
    """Returns the evaluation of a run to resume with ``changes``. Raises the errors of ``saved_config``."""
    sources = dict.fromkeys(RunConfig.model_fields, "config.json") | dict.fromkeys(changes, FLAG)
    return Evaluation(saved_config(RunDirectory(Path(run_dir)), changes), sources)


def run_together(
    evaluations: Sequence[Evaluation],
    run: Callable[[RunConfig], Awaitable[Outcome]],
    warehouse: str | None,
    *,
    style: Style = "auto",
    heartbeat_url: str | None = None,
) -> list[EndedEvaluation]:
    with within_budget([each.config for each in evaluations], Warehouse(resolve_warehouse(warehouse))):
        return watched(lambda: evaluate_together(evaluations, run, _say_ended), style, heartbeat_url)


def _say_ended(ended: EndedEvaluation) -> None:
    if ended.outcome is None:
        echo(f"{ended.evaluation.label}: not started", err=True)
        return
    summary = ended.outcome.summary
    reward = avg_reward(summary.avg_reward, summary.stderr)
    scored = f"{summary.scored} of {summary.rollouts} scored"
    echo(f"{ended.evaluation.label}: {ended.outcome.status}, {scored}, reward {reward}", err=True)


def limit_memory() -> None:
    """Limits the memory of this process and its children, so that a rollout fails before the system kills the run.

    Raises ``ConfigError`` if the environment variable is not a number.
    """
    if (wanted := _wanted_bytes()) is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _wanted_bytes() -> int | None:
    asked = os.environ.get(_MEMORY_VARIABLE, "").strip().lower()
    if asked == "none":
        return None
    if not asked:
        return int(_free_bytes() * _FREE_SHARE)
    try:
        gigabytes = float(asked)
    except ValueError:
        gigabytes = nan
    if not 0 < gigabytes < _MOST_GIGABYTES:
        raise ConfigError(f"{_MEMORY_VARIABLE} must be gigabytes, such as 8, or 'none', found {asked!r}")
    return int(gigabytes * _GIGABYTE)


def _free_bytes() -> int:
    free = int(psutil.virtual_memory().available)
    try:
        most, used = (int((_CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no container, or one without a limit
        return free
    return min(free, most - used)


def show_outcome(outcome: Outcome) -> None:
    console = Console(markup=False, emoji=False)
    metadata = outcome.metadata
    panel = Panel(
        _summary_table(outcome),
        title=Text(harmless(f"{metadata.env_id} | {metadata.model}")),
        subtitle=f"run {outcome.run_id}: {outcome.status}",
        expand=False,
        padding=(1, 2),
    )
    console.print(panel)
    where = outcome.warehouse if outcome.unpublished is None else f"not published in {outcome.warehouse}"
    print_labelled(
        {
            "Rescored": metadata.rescored_from,
            "Results": outcome.path,
            "Joined": outcome.joined,
            "Warehouse": where,
            "Hub": outcome.hub_url,
            "Prefect": page_in_prefect(metadata.flow_run_id),
            "Next": next_command(outcome),
        }
    )


def _summary_table(outcome: Outcome) -> Table:
    summary, metadata = outcome.summary, outcome.metadata
    table = Table.grid(padding=(0, 3))
    size = f"{counted(metadata.num_examples, 'example')} × {metadata.rollouts_per_example}"
    table.add_row("Rollouts", f"{summary.scored} of {summary.rollouts} scored ({size})")
    table.add_row("Avg reward", avg_reward(summary.avg_reward, summary.stderr))
    for name, value in summary.avg_metrics.items():
        table.add_row(harmless(f"  {name}"), f"{value:.4g}")
    for label, curve in (("pass@k", summary.pass_at_k), ("pass^k", summary.pass_all_k)):
        if curve:
            values = "  ".join(f"{k}: {value:.3f}" for k, value in curve.items())
            table.add_row(label, f"{values}  (over {counted(summary.complete_examples, 'example')})")
    table.add_row("Errors", harmless(_errors(outcome)))
    if outcomes := shown_outcomes(summary.outcomes):
        table.add_row("Outcomes", outcomes)
    if summary.usage:
        table.add_row("Tokens", f"{summary.usage['input_tokens']:,.0f} in, {summary.usage['output_tokens']:,.0f} out")
    if summary.usage and "cached_input_tokens" in summary.usage:
        cached = (summary.usage["cached_input_tokens"], summary.usage["cached_output_tokens"])
        table.add_row("From cache", "{:,.0f} in, {:,.0f} out".format(*cached))
    if outcome.cost is not None:
        table.add_row("Cost", money(outcome.cost))
    table.add_row("Runtime", f"{(metadata.time_ms or 0) / 1000:.1f} s")
    return table


def _errors(outcome: Outcome) -> str:
    summary = outcome.summary
    missing = summary.rollouts - summary.scored - summary.failed
    parts = [f"{count} × {name}" for name, count in summary.errors.items()]
    parts += [type(outcome.error).__name__] if outcome.error is not None else []
    parts += [f"{missing} missing"] if missing else []
    return ", ".join(parts) or "none"


def next_command(outcome: Outcome) -> str:
    if outcome.status != "completed" and outcome.metadata.rescored_from:
        if (words := outcome.rescoring) is not None:
            return shlex.join(words)
        return f"resume the original run {outcome.metadata.rescored_from}, and score it again"
    if outcome.failures[:1] == [FailureClass.JUDGE]:
        return shlex.join(["nightjar", "eval", "rescore", str(outcome.path)])
    if outcome.status != "completed":
        return f"the same command with --resume {shlex.quote(str(outcome.path))}"
    if outcome.unpublished is not None:
        return shlex.join(["nightjar", "publish", str(outcome.path), *_place(outcome)])
    return _commands_to_look([outcome.run_id], [outcome])


def _commands_to_look(shown_runs: Sequence[str], outcomes: Sequence[Outcome]) -> str:
    """Returns the command that shows runs in a browser, and the command that ranks the models of each environment."""
    place = _place(outcomes[0])
    environments = dict.fromkeys(outcome.metadata.env_id for outcome in outcomes)
    ranked = [["nightjar", "leaderboard", env_id, *place] for env_id in [*environments][:_MOST_RANKED]]
    return "\n".join(map(shlex.join, [["nightjar", "view", *shown_runs, *place], *ranked]))


def _place(outcome: Outcome) -> list[str]:
    return [] if outcome.warehouse == shown(resolve_warehouse()) else ["--warehouse", outcome.warehouse]


def finish(outcome: Outcome, as_json: bool, *, is_brief: bool = False) -> None:
    if as_json:
        echo(json.dumps(as_record(outcome), indent=2))
    elif is_brief:
        _show_table([(outcome.metadata.name or outcome.metadata.env_id, outcome)])
        print_labelled({"Next": next_command(outcome)})
    else:
        show_outcome(outcome)
    for error in errors_of(outcome):
        echo(f"Error: {error}", err=True)
    for kind in outcome.failures if not outcome.is_complete else ():
        echo(advice_line(kind), err=True)
    raise typer.Exit(130 if outcome.status == "cancelled" else int(not outcome.is_complete))


def as_record(outcome: Outcome) -> dict[str, Any]:
    return {**RunDirectory(outcome.path).read_metadata(), "path": str(outcome.path)}


def errors_of(outcome: Outcome) -> Iterator[str]:
    if isinstance(outcome.error, RunError) and outcome.status != "cancelled":
        yield str(outcome.error)
    elif (first := next(iter(outcome.summary.error_examples.values()), None)) is not None:
        failed = f"{outcome.summary.failed} of {counted(outcome.summary.rollouts, 'rollout')} failed"
        yield f"{failed}. The first: {first.partition(chr(10))[0]}"
    yield from (str(reason) for reason in (outcome.unpublished, outcome.unpushed) if reason is not None)


def finish_together(ended: Sequence[EndedEvaluation], as_json: bool) -> None:
    if as_json:
        echo(json.dumps([_record(each) for each in ended], indent=2))
    else:
        _show_table([(each.evaluation.label, each.outcome) for each in ended])
        outcomes = [each.outcome for each in ended if each.outcome is not None]
        is_complete = all(each.is_complete for each in ended)
        command = _commands_to_look([], outcomes) if is_complete else "the same command with --resume"
        print_labelled({"Cost": _cost_of_all([outcome.cost for outcome in outcomes]), "Next": command})
    for each in ended:
        for error in [str(each.error)] if each.outcome is None else errors_of(each.outcome):
            echo(f"Error: {each.evaluation.label}: {error}", err=True)
    is_cancelled = any(each.outcome is not None and each.outcome.status == "cancelled" for each in ended)
    raise typer.Exit(130 if is_cancelled else int(not all(each.is_complete for each in ended)))


def _cost_of_all(costs: Sequence[float | None]) -> str:
    known = [cost for cost in costs if cost is not None]
    unknown = len(costs) - len(known)
    rest = f"; the cost of {counted(unknown, 'evaluation')} is unknown" if unknown else ""
    return f"{money(sum(known))}{rest}" if known else ""


def _show_table(ended: Sequence[tuple[str, Outcome | None]]) -> None:
    headings = ("Evaluation", "Reward", "Std. error", "Scored", "Failed", "Status", "Run")
    rows = [(label, *_cells(outcome)) for label, outcome in ended]
    table = columns(headings, rows, numbers=headings[1:5], folded=headings[:1], has_rule=False)
    Console(markup=False, emoji=False).print(table)


def _cells(outcome: Outcome | None) -> tuple[str, ...]:
    if outcome is None:
        return "–", "–", "–", "–", "not started", "–"
    summary = outcome.summary
    reward, error = ("–" if value is None else f"{value:.4f}" for value in (summary.avg_reward, summary.stderr))
    scored = f"{summary.scored}/{summary.rollouts}"
    return reward, error, scored, str(summary.failed), outcome.status, outcome.run_id


def _record(ended: EndedEvaluation) -> dict[str, Any]:
    config = ended.evaluation.config
    own = {"name": ended.evaluation.label, "env_id": config.env_id, "model": config.model}
    if ended.outcome is None:
        return {**own, "status": "not started", "error": str(ended.error)}
    return {**as_record(ended.outcome), "name": ended.evaluation.label}
