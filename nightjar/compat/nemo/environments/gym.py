"""Runs benchmarks on Gym servers; docs/guides/gym-servers.md lists the forms of ``gym://`` URIs."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl

from nightjar.compat.nemo.environments.gym_environment import GymDataset, GymEnvironment, Protocol
from nightjar.compat.nemo.environments.uris import number_of
from nightjar.core.ports import free_port
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.errors import ConfigError, InfraError, ServiceError

__all__ = ["GymDataset", "GymEnvironment", "ManagedGymEnvironment", "gym_environment"]

_OPTIONS = frozenset({"protocol", "data", "timeout"})
_HOST_AND_PORT = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d+/?")
_FORMS = "gym://HOST:PORT, gym://module:MODULE[:APP], gym://cmd:COMMAND, gym://NAME"
_STARTED_BY = {"cmd": "server_cmd", "module": "server_module"}
_GUARD = Path(__file__).with_name("gym_guard.py")
_SIGNS_OF_LIFE = ("/health", "/openapi.json")
_POLL_SECONDS = 0.1
_ENDING_SECONDS = 10.0
_SHOWN_BYTES = 1000


def gym_environment(uri: str, **kwargs: Any) -> EvalEnvironment:
    """Returns the benchmark of a ``gym://`` URI; ``kwargs`` override the options in its query."""
    place, options = _taken_apart(uri)
    options |= kwargs
    if "data" in options:
        options["dataset"] = GymDataset(options.pop("data"))
    if _HOST_AND_PORT.fullmatch(place):
        return GymEnvironment(place, **options)
    if "timeout" in options:
        options["request_timeout"] = options.pop("timeout")
    kind, _, what = place.partition(":")
    if not place or (kind in _STARTED_BY and not what):
        raise ConfigError(f"{uri!r} names no server. Expected one of: {_FORMS}")
    options |= {_STARTED_BY[kind]: what} if kind in _STARTED_BY else {"nel_benchmark": place}
    return ManagedGymEnvironment(**options)


def _taken_apart(uri: str) -> tuple[str, dict[str, Any]]:
    """Returns the part after ``gym://``, and the URI's query. A command may contain question marks."""
    rest = uri.partition("://")[2]
    place, mark, query = rest.rpartition("?")
    options: dict[str, Any] = dict(parse_qsl(query)) if mark else {}
    unknown = options.keys() - _OPTIONS
    if not mark or ((unknown or not options) and rest.startswith("cmd:")):
        return rest, {}
    if unknown:
        raise ConfigError(
            f"{uri!r} has an unknown option {min(unknown)!r}. Choose one of: {', '.join(sorted(_OPTIONS))}"
        )
    if "timeout" in options:
        options["timeout"] = number_of(options["timeout"], "timeout", uri)
    return place, options


class ManagedGymEnvironment(GymEnvironment):
    """Starts a server, uses it like ``GymEnvironment``, and stops it.

    The server and its process group end with this process, even if this process is killed.

    Args:
        server_cmd: a shell command, with the address as ``{host}`` and ``{port}`` or ``$HOST`` and ``$PORT``.
        server_module: a module whose ``app`` uvicorn serves, or ``module:name``.
        nel_benchmark: a benchmark for ``nightjar serve``.
        startup_timeout: seconds until the server must respond.
    """

    def __init__(
        self,
        server_cmd: str | None = None,
        server_module: str | None = None,
        nel_benchmark: str | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        startup_timeout: float = 60.0,
        request_timeout: float = 120.0,
        protocol: Protocol = "evaluator",
        dataset: GymDataset | None = None,
    ) -> None:
        what = [text for text in (server_cmd, server_module, nel_benchmark) if text]
        if len(what) != 1:
            raise ConfigError("A Gym server needs exactly one of: server_cmd, server_module, nel_benchmark")
        self._host, self._port = host, port or free_port(host)
        super().__init__(f"http://{host}:{self._port}", protocol=protocol, dataset=dataset, timeout=request_timeout)
        kind = "cmd:" if server_cmd else "module:" if server_module else ""
        self._uri = f"gym://{kind}{what[0]}"
        self.name = f"gym@{dataset.name if dataset else what[0]}"
        self._command = self._command_of(server_cmd, server_module, nel_benchmark)
        self._startup_timeout = startup_timeout
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> None:
        """Starts the server if it is not running, and waits until it responds."""
        with self._lock:
            if self._process is not None:
                return
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                [sys.executable, "-P", str(_GUARD), *self._command],
                stdin=subprocess.PIPE,  # closed when this process ends
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C reaches only the run
            )
            try:
                self._wait(self._process)
            except BaseException:
                self._end()
                raise

    def stop(self) -> None:
        with self._lock:
            self._end()

    async def prepare(self) -> None:
        await asyncio.to_thread(self.start)

    async def dataset_size(self) -> int:
        await self.prepare()
        return await super().dataset_size()

    async def seed(self, idx: int) -> SeedResult:
        if self._process is None:
            await self.prepare()
        return await super().seed(idx)

    async def verify_row(
        self, response: str, expected: str, metadata: Mapping[str, Any], sandbox: Any = None
    ) -> VerifyResult:
        """Asks the server to score an answer. If the server has ended, the error shows its last output."""
        if self._process is None:
            await self.prepare()
        try:
            return await super().verify_row(response, expected, metadata, sandbox)
        except InfraError as error:
            if self._process is None or self._process.poll() is None:
                raise
            raise InfraError(f"{error}. The server has ended: {self._said()}") from error

    async def close(self) -> None:
        await super().close()
        process = self._let_go()
        for _ in range(round(_ENDING_SECONDS / _POLL_SECONDS)):
            if process is None or process.poll() is not None:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _command_of(self, command: str | None, module: str | None, benchmark: str | None) -> list[str]:
        port = str(self._port)
        place = ["--host", self._host, "--port", port]
        if command:
            line = command.replace("{host}", self._host).replace("{port}", port)
            return ["/usr/bin/env", f"HOST={self._host}", f"PORT={port}", "/bin/sh", "-c", line]
        if module:
            app = module if ":" in module else f"{module}:app"
            return [sys.executable, "-m", "uvicorn", app, *place]
        return [sys.executable, "-m", "nightjar", "serve", str(benchmark), *place]

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + self._startup_timeout
        while not any(_answers(self.endpoint + path) for path in _SIGNS_OF_LIFE):
            if process.poll() is not None:
                raise ServiceError(f"The server of {self._uri} ended with code {process.returncode}: {self._said()}")
            if time.monotonic() > until:
                seconds = f"{self._startup_timeout:.0f} s"
                raise ServiceError(f"{self.endpoint} of {self._uri} does not respond after {seconds}: {self._said()}")
            time.sleep(_POLL_SECONDS)

    def _end(self) -> None:
        if (process := self._let_go()) is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_SECONDS)

    def _let_go(self) -> subprocess.Popen[bytes] | None:
        """Closes the pipe to the guard, which then ends the server by force if needed."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None, "it is a pipe"
            process.stdin.close()
        if self._log is not None:
            self._log.close()
            self._log = None
        return process

    def _said(self) -> str:
        if self._log is None:
            return "it was stopped"
        log = self._log.fileno()  # pread keeps the file's position, which the server shares
        text = os.pread(log, _SHOWN_BYTES, max(0, os.fstat(log).st_size - _SHOWN_BYTES))
        return text.decode(errors="replace").strip() or "no output"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0):  # noqa: S310 - our own server
            return True
    except (urllib.error.URLError, OSError, ValueError):
        return False
