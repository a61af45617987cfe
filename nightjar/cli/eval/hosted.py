"""Runs on a Prefect server: ``nightjar eval logs``, ``eval stop``, and following a run until it ends."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, NoReturn

import typer

from nightjar.cli.options import HostedRunArgument, JsonOption, PrefectUrlOption
from nightjar.cli.output import print_json
from nightjar.cli.terminal import echo
from nightjar.core.failures import advice_line, class_in
from nightjar.errors import ConfigError, ServiceAwayError, ServiceError
from nightjar.hosting.hosted_runs import HostedRun, find_hosted_run, flow_run_of
from nightjar.hosting.run_logs import LogLine, RunLog
from nightjar.hosting.server import PrefectApi, find_prefect_api
from nightjar.hosting.submitting import Submitted, forget_secrets

_QUIET_SECONDS = 30.0
"""After so long without news, a line says that the run is still watched."""

_SETTLED_SECONDS = 5.0
"""How long log lines may arrive after the end of a run."""

_AWAY_SECONDS = 600.0
_STOP_SECONDS = 60.0
_STOP_POLL_SECONDS = 0.5
_FLAGS = {"logs": " -f"}


def eval_logs(
    run: HostedRunArgument,
    is_followed: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the run ends; exit with its status.")
    ] = False,
    tail: Annotated[
        int, typer.Option("--tail", "-n", min=0, metavar="N", help="Number of last lines to show.")
    ] = 1_000,
    poll_interval: Annotated[
        float,
        typer.Option("--poll-interval", min=0.1, metavar="SECONDS", help="Interval between requests to the server."),
    ] = 5.0,
    prefect_url: PrefectUrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Show the log of a run on a Prefect server.

    Examples: nightjar eval logs 0a1b2c | nightjar eval logs 0a1b2c -f --tail 20
    """
    api, found = hosted_run(run, prefect_url)
    log, show = RunLog(api, found.id), _show_json if as_json else echo
    lines = log.tail(tail)
    for line in lines:
        show(line)
    if is_followed:
        found = follow(api, found, log, show, poll_seconds=poll_interval, prefect_url=prefect_url)
        _end(found, prefect_url, as_json=False)
    if not lines:
        echo(f"{found.state}: its log is empty.", err=True)
    if not found.is_ended:
        commands = next_commands(found.run_id, ("logs",), prefect_url)
        echo(f"{found.state}: the run is in progress. Follow it: {commands}", err=True)


def eval_stop(run: HostedRunArgument, prefect_url: PrefectUrlOption = None, as_json: JsonOption = False) -> None:
    """Cancel a run on a Prefect server; its finished rollouts are kept and published.

    Example: nightjar eval stop 0a1b2c
    """
    api, found = hosted_run(run, prefect_url)
    text = f"Run {found.run_id} has ended already: {found.state}."
    if not found.is_ended:
        api.set_state(found.id, "CANCELLING", "nightjar eval stop")
        found = _wait_for_end(api, found)
        text = _stopped_text(found, prefect_url)
    if found.is_ended:
        forget_secrets(api, found)
    if as_json:
        print_json(record_of(found))
    else:
        echo(text)


def _wait_for_end(api: PrefectApi, run: HostedRun) -> HostedRun:
    """Waits until the run has ended, for a minute at most."""
    until = time.monotonic() + _STOP_SECONDS
    while True:
        now = _read(api, run)
        if now.is_ended or time.monotonic() > until:
            return now
        time.sleep(_STOP_POLL_SECONDS)


def _stopped_text(run: HostedRun, prefect_url: str | None) -> str:
    if not run.is_ended:
        commands = next_commands(run.run_id, ("logs",), prefect_url)
        return f"Run {run.run_id} was told to stop and has not ended yet. Follow it: {commands}"
    state = "Cancelled" if run.state == "CANCELLED" else f"It ended before it could be cancelled: {run.state}"
    return "\n".join([f"{state}: run {run.run_id}, {run.name}.", *run.message.splitlines()])


def server_if_any(prefect_url: str | None) -> PrefectApi | None:
    """Returns the given or configured server, or that of 'nightjar up'; ``ServiceError`` if it does not respond."""
    api_url = find_prefect_api(prefect_url)
    return PrefectApi(api_url) if api_url else None


def hosted_run(wanted: str, prefect_url: str | None) -> tuple[PrefectApi, HostedRun]:
    """Finds a run on a server by its ID, the beginning of its ID, or its name.

    Raises:
        ConfigError: there is no such run, or several.
        ServiceError: there is no server, or it does not respond.
    """
    api = server_if_any(prefect_url)
    if api is None:
        raise ServiceError("There is no Prefect server that knows of runs. Name one: --prefect-url URL")
    run = find_hosted_run(api, wanted)
    if run is None:
        raise ConfigError(f"The Prefect server at {api.url} knows no run {wanted!r}. List them: nightjar eval list")
    return api, run


def _read(api: PrefectApi, run: HostedRun) -> HostedRun:
    record = flow_run_of(run.id, api)
    if record is None:
        raise ServiceError(f"Run {run.run_id} was removed from the server")
    return HostedRun.of(record)


def next_commands(run_id: str, commands: Iterable[str], prefect_url: str | None = None) -> str:
    """Returns commands to type about a run, such as ``logs`` and ``stop``."""
    where = f" --prefect-url {shlex.quote(prefect_url)}" if prefect_url else ""
    return " | ".join(f"nightjar eval {command} {run_id}{_FLAGS.get(command, '')}{where}" for command in commands)


class _Watch:
    """A run that is followed.

    Args:
        api: its server.
        run: as it was found.
        log: its log, from the first line to show.
        show: prints a line.
    """

    def __init__(self, api: PrefectApi, run: HostedRun, log: RunLog, show: Callable[[LogLine], None]) -> None:
        self.run = run
        self._api = api
        self._log = log
        self._show = show
        self._changed_at = self._notice_at = time.monotonic()
        self._away_since: float | None = None

    def poll(self) -> None:
        """Shows new lines. An unreachable server is retried for ten minutes; then, or if it refuses: ServiceError."""
        try:
            run = _read(self._api, self.run)  # before its log, which may grow until shortly after its end
            lines = [*self._log.new()]
        except ServiceAwayError as error:
            self._note_away(error)
            return
        if self._away_since is not None:
            self._notice("The Prefect server responds again")
            self._away_since = None
        if lines or run.state != self.run.state:
            self._changed_at = self._notice_at = time.monotonic()
        self.run = run
        for line in lines:
            self._show(line)
        if not run.is_ended and time.monotonic() - self._notice_at >= _QUIET_SECONDS:
            self._notice(_quiet_text(run))

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and its log is complete."""
        return self.run.is_ended and time.monotonic() - self._changed_at >= _SETTLED_SECONDS

    def _note_away(self, error: ServiceAwayError) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self._notice(f"{error}. Waiting for it")
        if now - self._away_since > _AWAY_SECONDS:
            raise error

    def _notice(self, text: str) -> None:
        self._notice_at = time.monotonic()
        echo(text, err=True)


def _quiet_text(run: HostedRun) -> str:
    seconds = (datetime.now(UTC) - run.since).total_seconds()
    since = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"  # noqa: PLR2004 - two minutes
    if run.state == "PENDING":
        return f"{run.state} for {since}: no worker has started it. 'nightjar status' shows whether a worker is up"
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
    """Shows the log of a run until it has ended, and returns its last state. After Ctrl-C the run continues.

    Args:
        api: its server.
        run: to follow.
        log: its log, from the first line to show.
        show: prints a line.
        poll_seconds: interval between requests to the server.
        prefect_url: of the server, as typed.

    Raises:
        ServiceError: the server refuses, or stays unreachable.
    """
    watch = _Watch(api, run, log, show)
    try:
        if run.state == "PENDING":
            echo("Waiting for a worker to start it.", err=True)
        while True:
            watch.poll()
            if watch.is_over:
                return watch.run
            time.sleep(min(poll_seconds, 1.0) if watch.run.is_ended else poll_seconds)
    except KeyboardInterrupt:
        commands = next_commands(run.run_id, ("logs", "stop"), prefect_url)
        echo(f"\nNo longer followed; the run continues. Follow or stop it: {commands}", err=True)
        raise typer.Exit(130) from None


def follow_to_its_end(submitted: Submitted, poll_seconds: float, prefect_url: str | None, *, as_json: bool) -> NoReturn:
    """Follows a run that was just submitted, from its first line, and exits with its status."""
    api, run = hosted_run(submitted.flow_run_id, prefect_url)
    echo(f"Submitted {submitted.name}: run {submitted.run_id}, flow run {submitted.flow_run_id}", err=True)
    echo(f"Prefect: {submitted.page}", err=True)
    show = partial(echo, err=as_json)  # stdout is for the JSON
    ended = follow(api, run, RunLog(api, run.id), show, poll_seconds=poll_seconds, prefect_url=prefect_url)
    _end(ended, prefect_url, as_json=as_json)


def _show_json(line: LogLine) -> None:
    echo(json.dumps({"at": line.at.isoformat(), "level": line.level, "message": line.message}, ensure_ascii=False))


def _end(run: HostedRun, prefect_url: str | None, *, as_json: bool) -> NoReturn:
    """Prints how a run has ended, and exits with 0 if it is COMPLETED, else with 1."""
    if as_json:
        print_json(record_of(run))
    else:
        lines = [f"{run.state}: run {run.run_id}, {run.name}", *run.message.splitlines()]
        if run.failure is not None and class_in(run.message) is None:
            lines.append(advice_line(run.failure))
        for line in lines:
            echo(line, err=True)
        echo(f"Next: {next_commands(run.run_id, ('get', 'samples'), prefect_url)}", err=True)
    raise typer.Exit(int(run.state != "COMPLETED"))


def record_of(run: HostedRun) -> dict[str, Any]:
    """Returns the fields of a run on a server for ``--json``."""
    return {
        "run_id": run.run_id,
        "flow_run_id": run.id,
        "name": run.name,
        "state": run.state,
        "failure": run.failure,
        "message": run.message,
        "parameters": run.parameters,
    }
