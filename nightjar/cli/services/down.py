"""``nightjar down``: the end of what ``nightjar up`` started."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from nightjar.cli.terminal import echo
from nightjar.hosting.supervisor import stop, worker_runs
from nightjar.hosting.under_way import FlowRunUnderWay

_POLL_SECONDS = 1.0


def down(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Cancel runs under way without asking.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Let the runs under way finish first.")] = False,
) -> None:
    """Stop what 'nightjar up' started.

    Runs under way on its worker are cancelled: what they finished is published, and Retry does the rest.
    """
    if runs := worker_runs():
        echo("Under way:\n" + "\n".join(f"  {run.name} ({run.state.lower()}, {run.id})" for run in runs), err=True)
    if wait:
        _wait_for(runs)
    elif runs and not yes:
        _ask(len(runs))
    echo("Stopped." if stop() else "Nothing is running.")


def _ask(count: int) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "without a terminal to ask on, say --yes to cancel the runs, or --wait to let them finish"
        )
    these = "this run" if count == 1 else f"these {count} runs"
    typer.confirm(f"Cancel {these}? What is finished is kept, and published", abort=True, err=True)


def _wait_for(runs: list[FlowRunUnderWay]) -> None:
    while runs:
        time.sleep(_POLL_SECONDS)
        runs = worker_runs()
