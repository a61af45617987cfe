"""Runs evaluations from the command line: as Prefect flows or in this process, with a display, and limited memory."""

from __future__ import annotations

import asyncio
import os
import re
import resource
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import typer

from nightjar.cli.eval.live import Style, display
from nightjar.cli.eval.outcome import with_error
from nightjar.cli.terminal import echo
from nightjar.core.calling import leave_threads_behind
from nightjar.engine.runs import RunDirectory
from nightjar.errors import ConfigError
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
from nightjar.warehouse.location import refuse_secret

T = TypeVar("T")
Mode: TypeAlias = Literal["auto", "prefect", "direct"]
_MEMORY_VARIABLE = "NIGHTJAR_MEMORY_LIMIT"
"""Gigabytes, such as ``8`` or ``0.5``; ``none`` for no limit. Nine tenths of the free memory by default."""

_FREE_SHARE = 0.9
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
    """Returns a function that runs an evaluation. Mode ``auto`` uses Prefect if a server responds."""
    limit_memory()
    location = resolve_warehouse(warehouse)
    api_url = None if mode == "direct" else find_prefect_api(prefect_url)
    if mode == "prefect" or api_url is not None:
        return lambda config: _run_as_flow(config, location, output_dir, resume, where, api_url)
    if mode == "auto":
        echo("No Prefect server is configured or was started by 'nightjar up': running in this process.", err=True)
    target = Warehouse(location)
    return lambda config: evaluate(config, warehouse=target, output_dir=output_dir, resume=resume, where=where)


async def _run_as_flow(
    config: RunConfig, location: str, output_dir: Path | None, resume: str | None, where: str, api_url: str | None
) -> Outcome:
    check_warehouse(Warehouse(location))
    if location != resolve_warehouse():
        refuse_secret(location)
    return await evaluate_as_flow(config, location, output_dir, resume, api_url, where)


def watched(evaluation: Callable[[], Awaitable[T]], style: Style = "auto", heartbeat_url: str | None = None) -> T:
    """Runs one or several evaluations with a progress display, until they have ended or are stopped."""

    async def body() -> T:
        with display(style):
            async with stopped_by_signals(), heartbeats(heartbeat_url):
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
    """Checks, before anything else, that environments, engines and the named keys are available."""
    configs = [evaluation.config for evaluation in evaluations]
    check_environments(configs)
    check_engines(configs)
    check_named_keys(evaluations)


def evaluation_of(run_dir: str, changes: Mapping[str, Any]) -> Evaluation:
    """Returns the evaluation of a run to resume, with changed fields; errors as for ``saved_config``."""
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
    """Runs several evaluations concurrently, with their progress on stderr."""
    with within_budget([each.config for each in evaluations], Warehouse(resolve_warehouse(warehouse))):
        return watched(lambda: evaluate_together(evaluations, run, _say_ended), style, heartbeat_url)


def _say_ended(ended: EndedEvaluation) -> None:
    if ended.outcome is None:
        echo(f"{ended.evaluation.label}: not started", err=True)
        return
    summary = ended.outcome.summary
    reward = with_error(summary.avg_reward, summary.stderr)
    scored = f"{summary.scored} of {summary.rollouts} scored"
    echo(f"{ended.evaluation.label}: {ended.outcome.status}, {scored}, reward {reward}", err=True)


def limit_memory() -> None:
    """Limits the memory of this process; children inherit the limit.

    Code that exceeds it gets a ``MemoryError``, which costs its rollout. Without a limit the system would kill the
    whole run. ``ConfigError`` if the environment variable is not a number.
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
        free = _free_bytes()
        return None if free is None else int(free * _FREE_SHARE)
    try:
        gigabytes = float(asked)
    except ValueError:
        gigabytes = nan
    if not 0 < gigabytes < _MOST_GIGABYTES:
        raise ConfigError(f"{_MEMORY_VARIABLE} must be gigabytes, such as 8, or 'none', found {asked!r}")
    return int(gigabytes * _GIGABYTE)


def _free_bytes() -> int | None:
    """Returns the free memory of this machine or container; None if the system does not report it."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        return None
    free = [int(found[1]) * 1024] if found else []
    try:
        most, used = (int((_CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        free.append(most - used)
    except (OSError, ValueError):  # no container, or one without a limit
        pass
    return min(free, default=None)
