"""Processes of ``nightjar up``: services, which are restarted when they end, and their ports and logs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from nightjar.core.ports import first_free_port
from nightjar.errors import ServiceError

_STEADY_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 60.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.2
_PORTS_TRIED = 20


def spawn(
    log: Path, module: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Starts a Python module, given as name and arguments, in a new session. Appends its output to ``log``.

    The process does not import from its folder, where a user's ``queue.py`` would hide Python's module. ``environment``
    is added to the environment of this process.
    """
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-P", "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C reaches only the supervisor, which ends services in order
        )


@dataclass
class Service:
    """A process that is restarted when it ends by itself, after increasing pauses."""

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
        return self.process.pid

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def revive(self) -> str | None:
        """Restarts the service if it has ended and the pause is over.

        Returns a message, or None if nothing happened.
        """
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
    """Kills a service that a killed ``nightjar up`` left behind, unless the process started after ``since``."""
    try:
        process = psutil.Process(pid)
        if process.create_time() <= since and {"prefect", "view"} & {*process.cmdline()}:
            process.kill()
            process.wait(_STOP_SECONDS)
    except psutil.Error:
        return


def free_port(first: int) -> int:
    """Returns a free port near ``first``. Raises ``ServiceError`` if there is none."""
    last = first + _PORTS_TRIED - 1
    if (port := first_free_port(range(first, last + 1))) is None:
        raise ServiceError(f"Ports {first} to {last} are in use. Free one of them, or pass --no-view")
    return port


def wait_until(is_done: Callable[[], bool], seconds: float, complaint: str) -> None:
    """Waits until ``is_done`` returns True. Raises ``ServiceError`` with the complaint after ``seconds``."""
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise ServiceError(f"{complaint} within {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty"
