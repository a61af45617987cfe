"""``nightjar env validate harbor://PATH``: checks the tasks of agents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import indent as indented
from typing import Any

import typer
from rich.console import Console

from nightjar.cli.output import columns, print_json, progress_of
from nightjar.cli.terminal import echo
from nightjar.core.logs import log_to_stderr
from nightjar.core.text import counted, harmless
from nightjar.environments.agents.task_checks import SCHEME, AgentResult, TaskCheck, check_tasks
from nightjar.errors import ConfigError

__all__ = ["SCHEME", "validate_tasks"]

_LOG_LINES = 8


def validate_tasks(
    uri: str, env_args: Mapping[str, Any], max_sandboxes: int | None, *, verbose: bool, as_json: bool
) -> None:
    """Checks all tasks, prints the results, and exits with 1 if a task fails."""
    path = uri.removeprefix(SCHEME)
    if not path:
        raise ConfigError(f"{SCHEME} needs the path of a task or of a folder of tasks: {SCHEME}PATH")
    if verbose:
        log_to_stderr()
    started = time.monotonic()
    with progress_of("Checking tasks") as progress:
        found = asyncio.run(check_tasks(Path(path), env_args, max_sandboxes, progress))
    seconds = time.monotonic() - started
    failed = [each for each in found if each.problems]
    if as_json:
        tasks = [{**asdict(each), "problems": each.problems} for each in found]
        print_json({"env_id": uri, "size": len(found), "passed": not failed, "seconds": seconds, "tasks": tasks})
    else:
        _show(uri, found, failed, seconds, verbose=verbose)
    if failed:
        raise typer.Exit(1)


def _show(uri: str, found: Sequence[TaskCheck], failed: Sequence[TaskCheck], seconds: float, *, verbose: bool) -> None:
    headings = ("Task", "Runs here", "oracle", "nop", "Result")
    Console().print(columns(headings, map(_row, found), numbers=()))
    for each in failed:
        for line in _lines(each, verbose=verbose):
            echo(line)
    echo(f"{uri}: {counted(len(found), 'task')}, in {seconds:.1f} s")
    echo(f"FAIL: {counted(len(failed), 'task')}" if failed else "PASS")


def _row(check: TaskCheck) -> tuple[str, ...]:
    runs = "no" if check.refused else "yes"
    return check.name, runs, _cell(check.oracle), _cell(check.nop), "FAIL" if check.problems else "PASS"


def _cell(result: AgentResult | None) -> str:
    if result is None:
        return "–"
    return "error" if result.reward is None else f"{result.reward:g}"


def _lines(check: TaskCheck, *, verbose: bool) -> Iterator[str]:
    for problem in check.problems:
        yield f"{check.name}: {indented(harmless(problem), '  ').lstrip()}"
    for agent, result in (("oracle", check.oracle), ("nop", check.nop)) if verbose else ():
        for what, log in _logs(result):
            yield f"{check.name}: the end of the output of {what} ({agent}):"
            yield from (f"  {harmless(line)}" for line in log.splitlines()[-_LOG_LINES:])


def _logs(result: AgentResult | None) -> Iterator[tuple[str, str]]:
    if result is not None:
        yield from (each for each in (("solve.sh", result.agent_log), ("the tests", result.log)) if each[1])
