"""Follows a run on a server: its log as it comes, a word while nothing comes, and how it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

import typer

from nightjar.cli.eval.arguments import hosted_run, next_commands
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse.output import print_json
from nightjar.errors import ServiceAwayError, ServiceError
from nightjar.evaluation.failures import advice_line, class_in
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.hosted_runs import HostedRun, read_hosted_run
from nightjar.hosting.run_logs import LogLine, RunLog
from nightjar.hosting.submitting import Submitted

_QUIET_SECONDS = 30.0
_SETTLED_SECONDS = 5.0
_AWAY_SECONDS = 600.0
_COMPLETED = "COMPLETED"


class _Watch:
    """A run that is followed.

    Args:
        api: its server.
        run: as it was found.
        log: its log, from where it is to be shown.
        show: prints a line.
    """

    def __init__(self, api: PrefectApi, run: HostedRun, log: RunLog, show: Callable[[LogLine], None]) -> None:
        self.run = run
        self._api = api
        self._log = log
        self._show = show
        self._heard_at = self._said_at = time.monotonic()
        self._away_since: float | None = None

    def look(self) -> None:
        """Shows what is new; a server that is away is waited for.

        Raises:
            ServiceError: it refuses, or stays away.
        """
        try:
            run = read_hosted_run(self._api, self.run.id)  # before its log: what comes after its end comes soon
            lines = [*self._log.new()]
        except ServiceAwayError as error:
            self._note_away(error)
            return
        if run is None:
            raise ServiceError(f"Run {self.run.run_id} was removed from the server")
        if self._away_since is not None:
            self._say("Prefect's server answers again")
            self._away_since = None
        if lines or run.state != self.run.state:
            self._heard_at = self._said_at = time.monotonic()
        self.run = run
        for line in lines:
            self._show(line)
        if not run.is_ended and time.monotonic() - self._said_at >= _QUIET_SECONDS:
            self._say(_waiting(run))

    @property
    def is_over(self) -> bool:
        """Says whether it has ended, and nothing more comes."""
        return self.run.is_ended and time.monotonic() - self._heard_at >= _SETTLED_SECONDS

    def _note_away(self, error: ServiceAwayError) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self._say(f"{error}. Waiting for it")
        if now - self._away_since > _AWAY_SECONDS:
            raise error

    def _say(self, text: str) -> None:
        self._said_at = time.monotonic()
        echo(text, err=True)


def _waiting(run: HostedRun) -> str:
    seconds = (datetime.now(UTC) - run.since).total_seconds()
    since = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"  # noqa: PLR2004 - two minutes
    if run.state == "PENDING":
        return f"{run.state} for {since}: no worker has begun it. 'nightjar status' says whether one is up"
    return f"{run.state} for {since}: nothing new in its log"


def follow(
    api: PrefectApi,
    run: HostedRun,
    log: RunLog,
    show: Callable[[LogLine], None],
    *,
    poll_seconds: float,
    prefect_url: str | None,
) -> HostedRun:
    """Shows the log of a run until it has ended, and returns how; Ctrl-C leaves the run running.

    Args:
        api: its server.
        run: the run.
        log: its log, from where it is to be shown.
        show: prints a line.
        poll_seconds: how long to wait before looking again.
        prefect_url: of the server, where it was typed.

    Raises:
        ServiceError: the server refuses, or stays away.
    """
    watch = _Watch(api, run, log, show)
    try:
        if run.state == "PENDING":
            echo("Waiting for a worker to begin it.", err=True)
        while True:
            watch.look()
            if watch.is_over:
                return watch.run
            time.sleep(min(poll_seconds, 1.0) if watch.run.is_ended else poll_seconds)
    except KeyboardInterrupt:
        commands = next_commands(run.run_id, ("logs", "stop"), prefect_url)
        echo(f"\nNot followed any more; the run goes on. Follow or stop it: {commands}", err=True)
        raise typer.Exit(130) from None


def follow_to_its_end(submitted: Submitted, poll_seconds: float, prefect_url: str | None, *, as_json: bool) -> NoReturn:
    """Follows a run that was submitted just now, from its first line; errors as of ``follow``."""
    api, run = hosted_run(submitted.flow_run_id, prefect_url)
    echo(f"Submitted {submitted.name}: run {submitted.run_id}, flow run {submitted.flow_run_id}", err=True)
    echo(f"Prefect: {submitted.page}", err=True)
    log = RunLog(api, run.id)
    show = show_on_stderr if as_json else show_line
    end(
        follow(api, run, log, show, poll_seconds=poll_seconds, prefect_url=prefect_url),
        prefect_url,
        as_json=as_json,
    )


def show_line(line: LogLine) -> None:
    """Prints a line of a log."""
    echo(line)


def show_on_stderr(line: LogLine) -> None:
    """Prints a line of a log where it is no result."""
    echo(line, err=True)


def show_json(line: LogLine) -> None:
    """Prints a line of a log as a line of JSON."""
    echo(json.dumps({"at": line.at.isoformat(), "level": line.level, "message": line.message}, ensure_ascii=False))


def end(run: HostedRun, prefect_url: str | None, *, as_json: bool) -> NoReturn:
    """Says how a run has ended, and leaves the process with its exit code: 0 when it is COMPLETED."""
    if as_json:
        print_json(record_of(run))
    else:
        for line in ending(run):
            echo(line, err=True)
        echo(f"Next: {next_commands(run.run_id, ('get', 'samples'), prefect_url)}", err=True)
    raise typer.Exit(int(run.state != _COMPLETED))


def ending(run: HostedRun) -> list[str]:
    """Returns how a run ended: its state, why, and what to do."""
    lines = [f"{run.state}: run {run.run_id}, {run.name}", *run.message.splitlines()]
    if run.failure is not None and class_in(run.message) is None:
        lines.append(advice_line(run.failure))
    return lines


def record_of(run: HostedRun) -> dict[str, Any]:
    """Returns what ``--json`` prints of a run on a server."""
    return {
        "run_id": run.run_id,
        "flow_run_id": run.id,
        "name": run.name,
        "state": run.state,
        "failure": run.failure,
        "message": run.message,
        "parameters": run.parameters,
    }
