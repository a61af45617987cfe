"""Supervises a Prefect server, the web view and a worker, in one process. Writes ``up.log`` in Nightjar's home."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nightjar.core.home import VIEW_PORT, VIEW_URL, home
from nightjar.core.live_processes import is_running
from nightjar.core.ports import first_free_port
from nightjar.core.text import counted
from nightjar.errors import ServiceError
from nightjar.hosting.active_runs import (
    ActiveFlowRun,
    LostResults,
    LostRuns,
    active_flow_runs,
    end_keepers,
)
from nightjar.hosting.processes import Service, end_left_over, free_port, last_line, spawn, wait_until
from nightjar.hosting.server import (
    POOL,
    SETTINGS,
    PrefectApi,
    configured_prefect_api,
    database_settings,
    prefect_answers,
    prefixed,
    server_command,
    worker_command,
)
from nightjar.hosting.state import (
    ServicesState,
    check_nobody_supervises,
    forget_state,
    read_state,
    supervisor_lock,
    supervisor_pid,
    write_state,
    written_at,
)

if TYPE_CHECKING:
    from nightjar.hosting.automations import Change

_START_SECONDS = 180.0
_STOP_SECONDS = 120.0
_CANCEL_SECONDS = 40.0
_WATCH_SECONDS = 1.0
_LOST_RUNS_SECONDS = 5.0


@dataclass(frozen=True)
class Choices:
    """The user's choices for ``nightjar up``. If ``view_port`` is None, any free port is used.

    ``database_url`` may refer to environment variables, as in ``postgresql://ann:$NAME@db/prefect``.
    """

    port: int
    prefix: str = ""
    is_taken_over: bool = False
    is_viewed: bool = True
    view_port: int | None = None
    database_url: str = ""

    def flags(self) -> list[str]:
        switches = {"--take-over": self.is_taken_over, "--no-view": not self.is_viewed}
        view_port = [] if self.view_port is None else ["--view-port", str(self.view_port)]
        database = ["--database-url", self.database_url] if self.database_url else []
        values = ["--port", str(self.port), "--name-prefix", self.prefix, *view_port, *database]
        return [*values, *(flag for flag, is_set in switches.items() if is_set)]


class Supervisor:
    def __init__(self, choices: Choices, notify: Callable[[str], None]) -> None:
        self._choices = choices
        self._notify = notify
        self._view_url = ""
        self._services: list[Service] = []
        self._is_up = False
        self._api = PrefectApi(f"http://127.0.0.1:{choices.port}/api")
        self._work_pool = prefixed(POOL, choices.prefix)
        self._every_seconds = float(os.environ.get("NIGHTJAR_LOST_RUNS_SECONDS") or _LOST_RUNS_SECONDS)
        self._lost_runs = LostRuns(self._api, self._work_pool, settled_seconds=2 * self._every_seconds)
        self._lost_results = LostResults(self._api, home() / "up.log")

    def start(self) -> str:
        """Starts the services. Returns a text with the addresses and the next steps."""
        self._end_left_over()
        self._check_view_port()
        self._use_server()
        from nightjar.hosting.deployments import (  # takes 3 s, while the server starts
            DEPLOYMENTS,
            Wanted,
            deploy,
            deployment_name,
        )

        self._wait_for_server()
        if self._choices.is_viewed:
            self._serve_view()
        prefix = self._choices.prefix
        changes = asyncio.run(deploy(Wanted(Path.cwd(), prefix, self._choices.is_taken_over)))
        updated = [each for each in changes if each.kind == "change"]
        names = [deployment_name(each, prefix) for each in DEPLOYMENTS]
        self._services.append(Service("The worker", home() / "worker.log", worker_command(self._work_pool)))
        self._is_up = True
        self._record()
        self._log(f"Up: {self._api.url}, work pool {self._work_pool!r}, folder {Path.cwd()}.")
        for change in updated:
            self._log(f"Updated {change.what}: {'; '.join(change.details)}.")
        return (
            f"Prefect is up: {self._api.url.removesuffix('/api')}\n"
            f"Web view:      {self._view_url or 'not served'}\n"
            f"Deployments:   {', '.join(names)}\n"
            f"{_said_of(updated)}"
            f"Logs:          {home()}\n"
            "Next:          nightjar eval run ENV -m MODEL   (appears in the UI)\n"
            "See also:      nightjar status\n"
            f"Prefect's CLI: export PREFECT_API_URL={self._api.url}\n"
            "Stop with:     nightjar down"
        )

    def watch(self) -> None:
        due = time.monotonic()
        while True:
            if said := [text for service in self._services if (text := service.revive())]:
                self._say(said)
                self._record()
            if time.monotonic() >= due:
                self._settle_lost_runs()
                due = time.monotonic() + self._every_seconds
            time.sleep(_WATCH_SECONDS)

    def end(self) -> None:
        """Cancels the worker's runs, which publish their finished rollouts, and ends the services in reverse order."""
        if self._is_up:
            with suppress(KeyboardInterrupt, SystemExit, ServiceError):
                self._cancel_runs()
        self._lost_results.wait()
        for service in reversed(self._services):
            service.end()
        end_keepers(self._api.url)
        if self._services:
            self._log("Down.")

    def _end_left_over(self) -> None:
        if (left := read_state()) is not None:
            for name, (pid, _) in left.services.items():
                self._log(f"{name} may still run as process {pid}, which is ended.")
                end_left_over(pid, written_at())
            forget_state()

    def _use_server(self) -> None:
        is_configured = configured_prefect_api() == self._api.url
        os.environ.update({"PREFECT_API_URL": self._api.url, "PREFECT_SERVER_UI_API_URL": self._api.url})
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        if not prefect_answers(self._api.url):
            database = database_settings(self._choices.database_url)
            command = server_command(self._choices.port)
            self._services.append(Service("Prefect's server", home() / "server.log", command, database))
        elif is_configured and self._choices.database_url:
            raise ServiceError(
                f"A Prefect server answers at {self._api.url} already: --database-url does not change it"
            )
        elif is_configured:
            self._notify(f"A Prefect server answers at {self._api.url} already. It is used.")
        else:
            raise ServiceError(
                f"A Prefect server that 'nightjar up' did not start answers at {self._api.url}. Choose another port "
                f"with --port, or add a worker to that server: PREFECT_API_URL={self._api.url} nightjar up"
            )

    def _wait_for_server(self) -> None:
        if not self._services:
            return
        [server] = self._services
        wait_until(
            lambda: prefect_answers(self._api.url) or server.has_ended(),
            _START_SECONDS,
            f"Prefect's server does not answer at {self._api.url}; see {server.log}",
        )
        if server.has_ended():
            raise ServiceError(f"Prefect's server did not start: {last_line(server.log)}. The log is {server.log}")

    def _check_view_port(self) -> None:
        asked = self._choices.view_port
        if asked is not None and first_free_port([asked]) is None:
            raise ServiceError(f"Port {asked} for the web view is in use. Choose another one with --view-port")

    def _serve_view(self) -> None:
        port = self._choices.view_port or free_port(VIEW_PORT)
        view = ("nightjar", "view", "--no-browser", "--port", str(port))
        self._services.append(Service("The web view", home() / "view.log", view))
        self._view_url = os.environ[VIEW_URL] = f"http://127.0.0.1:{port}/"

    def _settle_lost_runs(self) -> None:
        from nightjar.hosting.submitting import forget_old_secrets

        with suppress(ServiceError):  # the server is being restarted
            self._say(self._lost_runs.settle())
            self._say(self._lost_results.publish())
            if count := forget_old_secrets(self._api):
                self._say([f"Removed the unused secrets of {counted(count, 'run')}."])

    def _cancel_runs(self) -> None:
        self._settle_lost_runs()
        cancelled: set[str] = set()
        until = time.monotonic() + _CANCEL_SECONDS
        while (runs := _runs_here(self._api, self._work_pool)) and time.monotonic() < until:
            for run in runs:
                if run.id not in cancelled:
                    cancelled.add(run.id)
                    self._cancel(run)
            time.sleep(_WATCH_SECONDS)

    def _cancel(self, run: ActiveFlowRun) -> None:
        self._say([f"Run {run.name!r} ({run.id}) is cancelled: 'nightjar up' ends."])
        self._api.set_state(run.id, "CANCELLING", "'nightjar up' was stopped")
        run.stop()

    def _record(self) -> None:
        write_state(
            ServicesState(
                api_url=self._api.url,
                folder=str(Path.cwd()),
                work_pool=self._work_pool,
                services={service.name: (service.pid, service.restarts) for service in self._services},
                view_url=self._view_url or None,
            )
        )

    def _say(self, lines: Iterator[str] | list[str]) -> None:
        for line in lines:
            self._log(line)
            self._notify(line)

    @staticmethod
    def _log(text: str) -> None:
        with (home() / "up.log").open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")


def supervise(choices: Choices, announce: Callable[[str], None], notify: Callable[[str], None]) -> None:
    with supervisor_lock():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        supervisor = Supervisor(choices, notify)
        try:
            text = supervisor.start()
            _ready_file().write_text(text, encoding="utf-8")
            announce(text)
            supervisor.watch()
        except KeyboardInterrupt:
            notify("Stopping.")
        finally:
            supervisor.end()
            _ready_file().unlink(missing_ok=True)
            forget_state()


def supervise_in_background(choices: Choices) -> str:
    """Starts a supervisor process. Returns the text of ``Supervisor.start`` once all services run."""
    check_nobody_supervises()
    log, ready = home() / "up.out", _ready_file()
    ready.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    process = spawn(log, ("nightjar", "up", *choices.flags()))
    wait_until(lambda: ready.exists() or process.poll() is not None, _START_SECONDS, f"No start; see {log}")
    if not ready.exists():
        raise ServiceError(last_line(log).removeprefix("Error: "))
    return ready.read_text(encoding="utf-8")


def stop() -> bool:
    """Stops ``nightjar up``. Returns False if nothing runs."""
    pid = supervisor_pid()
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: supervisor_pid() is None and not is_running(pid), _STOP_SECONDS, f"Process {pid} does not end")
    return True


def worker_runs() -> list[ActiveFlowRun]:
    """Returns the runs that ``nightjar down`` would cancel. If the server does not answer, the list is empty."""
    state = read_state()
    if state is None or supervisor_pid() is None or not prefect_answers(state.api_url):
        return []
    return _runs_here(PrefectApi(state.api_url), state.work_pool)


def _runs_here(api: PrefectApi, work_pool: str) -> list[ActiveFlowRun]:
    runs = active_flow_runs(api, work_pool)
    return [run for run in runs if not run.is_elsewhere and (run.state == "PENDING" or run.process())]


def _said_of(updated: Sequence[Change]) -> str:
    if not updated:
        return ""
    fields = {each.what: ", ".join(line.partition(":")[0] for line in each.details) for each in updated}
    said = [f"{what.removeprefix('deployment ')} ({changed})" for what, changed in fields.items()]
    return f"Updated:       {', '.join(said)}\n"


def _ready_file() -> Path:
    return home() / "up.ready"
