"""``Service``: a process that is started again when it ends by itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from nightjar.errors import ServiceError

_STEADY_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 60.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.2
_PORTS_TRIED = 20


def spawn(
    log: Path, module: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Starts a Python module in a session of its own.

    Its own folder is no place to import from: a user's folder may have packages called as Nightjar's are.

    Args:
        log: where what it prints is appended.
        module: its name and arguments.
        environment: what it has beside this process's environment.
        folder: where it runs; None for where this process does.
    """
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-P", "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # so that Ctrl-C reaches the supervisor alone, which ends the others in order
        )


@dataclass
class Service:
    """A process that is started again when it ends by itself, each time after a longer pause.

    Attributes:
        name: what a person calls it.
        log: where what it prints is appended.
        module: the Python module that it is, with its arguments.
        environment: what it has beside this process's environment.
        process: the present one, or the last.
        restarts: how often it was started again.
    """

    name: str
    log: Path
    module: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] = field(init=False)
    restarts: int = 0
    _started_at: float = field(init=False)
    _pause_seconds: float = 0.5
    _again_at: float | None = None

    def __post_init__(self) -> None:
        self._start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def has_ended(self) -> bool:
        """Says whether there is no process at present."""
        return self.process.poll() is not None

    def revive(self) -> str | None:
        """Starts it again where it has ended and its pause is over; says what happened, None where nothing did."""
        if not self.has_ended():
            return None
        if self._again_at is None:
            return self._pause()
        if time.monotonic() < self._again_at:
            return None
        self.restarts += 1
        self._start()
        return f"{self.name} was started again, as process {self.pid}."

    def end(self) -> None:
        """Ends it, and waits for that."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _start(self) -> None:
        self.process = spawn(self.log, self.module, self.environment)
        self._started_at, self._again_at = time.monotonic(), None

    def _pause(self) -> str:
        was_steady = time.monotonic() - self._started_at > _STEADY_SECONDS
        self._pause_seconds = 1.0 if was_steady else min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        self._again_at = time.monotonic() + self._pause_seconds
        code = self.process.returncode
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"{self.name} ended {how}, and is started again in {self._pause_seconds:.0f} s. Its log is {self.log}"


def end_left_over(pid: int, since: float) -> None:
    """Ends a service that an earlier process of ``nightjar up``, which was killed, has left behind.

    What a worker runs goes on without it.

    Args:
        pid: its process id.
        since: when it was known to run; a process that is newer is another one.
    """
    try:
        process = psutil.Process(pid)
        if process.create_time() <= since and {"prefect", "view"} & {*process.cmdline()}:
            process.kill()
            process.wait(_STOP_SECONDS)
    except psutil.Error:
        return


def free_port(first: int) -> int:
    """Returns the first port of this machine from this one on at which nothing listens.

    Raises:
        ServiceError: there is none near.
    """
    for port in range(first, first + _PORTS_TRIED):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServiceError(
        f"Something listens at each port from {first} to {first + _PORTS_TRIED - 1}. Do without: --no-view"
    )


def wait_until(is_done: Callable[[], bool], seconds: float, complaint: str) -> None:
    """Waits until something holds.

    Raises:
        ServiceError: it does not in time.
    """
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise ServiceError(f"{complaint} within {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def last_line(path: Path) -> str:
    """Returns the last line of a log."""
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
