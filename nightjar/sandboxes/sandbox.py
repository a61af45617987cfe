"""The protocol of sandboxes. A ``Sandbox`` runs commands; a ``SandboxProvider`` makes sandboxes.

A provider only implements the start of a process inside (``Sandbox.spawn``). The output of a sandbox is not trusted. So
its size is bounded, and only processes inside read or write the sandbox's files.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TypeAlias

from nightjar.errors import SandboxError
from nightjar.sandboxes.request import CreateSandboxRequest

MAX_OUTPUT_BYTES = 1_000_000
MAX_FILE_BYTES = 256 * 2**20
_GRACE_SECONDS = 10.0
_FILE_SECONDS = 120.0
_NOT_A_FILE = 66

Command: TypeAlias = str | Sequence[str]
"""A line for the shell, or a program and its arguments."""


class Stream(IntEnum):
    """The stream of a piece of output."""

    STDOUT = 1
    STDERR = 2


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a process's output."""

    stream: Stream
    data: bytes


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command. ``is_truncated`` means that the output was cut at the limit."""

    stdout: str
    stderr: str
    exit_code: int | None
    """The exit code; 128 plus the signal's number after a signal; None if the command timed out and was killed."""
    is_timed_out: bool = False
    is_truncated: bool = False


class SandboxProcess(ABC):
    """A process in a sandbox, with pipes to it.

    Example:
        >>> async def shout(sandbox: Sandbox) -> bytes:
        ...     process = await sandbox.spawn("tr a-z A-Z")
        ...     await process.write(b"hello")
        ...     await process.close_input()
        ...     return (await process.read()).data
    """

    @abstractmethod
    async def read(self) -> Output | None:
        """Returns the next piece of output, or None when the process has ended."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Writes to standard input. Data that the process no longer reads is lost."""

    @abstractmethod
    async def close_input(self) -> None:
        """Closes standard input."""

    @abstractmethod
    async def exit_code(self) -> int:
        """Returns the exit code. Call this method after ``read`` has returned None."""

    @abstractmethod
    async def close(self) -> None:
        """Releases the process. If it is still running, kills it with all processes that it started."""


class Sandbox(ABC):
    """The sandbox of one rollout. Commands run one after another or concurrently, and share files.

    ``workspace`` is the directory, inside the sandbox, in which commands run. Its files stay until the sandbox is
    closed.

    Example:
        >>> async def count(sandbox: Sandbox) -> str:
        ...     await sandbox.upload(b"1 2 3", "numbers.txt")
        ...     result = await sandbox.exec("wc -w < numbers.txt; whoami >&2", timeout=10)
        ...     return result.stdout.strip()
    """

    id: str
    workspace: str = "/workspace"

    @abstractmethod
    async def start(self) -> None:
        """Starts the sandbox and its start command. Raises ``SandboxCreationError`` if the start fails."""

    @abstractmethod
    async def spawn(
        self,
        command: Command,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        max_output_bytes: int | None = None,
    ) -> SandboxProcess:
        """Starts a process. Output beyond ``max_output_bytes`` of a stream may be dropped."""

    @abstractmethod
    async def end_processes(self) -> None:
        """Kills all processes inside, so that none can disturb the next process. Reruns the start command."""

    @abstractmethod
    async def close(self) -> None:
        """Kills all processes inside and removes the sandbox. Closing twice is allowed."""

    @abstractmethod
    def close_now(self) -> None:
        """Does the same as ``close`` without an event loop."""

    async def exec(
        self,
        command: Command,
        timeout: float | None = None,  # noqa: ASYNC109 - the result says that the time was up
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> CommandResult:
        """Runs a command to its end. Background processes that the command leaves behind keep running.

        After ``timeout`` seconds, the command is killed with all processes that it started. ``env`` is added to the
        sandbox's variables. Each stream is cut after ``max_output_bytes``, and a notice is added.
        """
        outcome = await self._run(command, timeout, working_dir, env, stdin, max_output_bytes)
        stderr = [outcome.text(Stream.STDERR), self.take_notice()]
        return CommandResult(
            outcome.text(Stream.STDOUT),
            "\n".join(part for part in stderr if part),
            outcome.exit_code,
            outcome.is_timed_out,
            is_truncated=bool(outcome.cut),
        )

    async def upload(self, content: bytes, path: str) -> None:
        """Writes a file through a process inside, so that the file cannot be written outside."""
        script = 'mkdir -p -- "$(dirname -- "$1")" && head -c "$2" > "$1"'
        done = await self.exec(["/bin/sh", "-c", script, "sh", path, str(len(content))], _FILE_SECONDS, stdin=content)
        if done.exit_code != 0:
            raise SandboxError(f"Sandbox {self.id!r} cannot write {path!r}: {done.stderr.strip() or 'time was up'}")

    async def download(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """Returns the content of a file. Links are resolved inside the sandbox, so no link leads outside.

        Raises ``FileNotFoundError`` if there is no regular file, and ``SandboxError`` if the file exceeds
        ``max_bytes``.
        """
        script = f'[ -f "$1" ] || exit {_NOT_A_FILE}; exec head -c "$2" -- "$1"'
        command = ["/bin/sh", "-c", script, "sh", path, str(max_bytes + 1)]
        done = await self._run(command, _FILE_SECONDS, max_output_bytes=max_bytes)
        if done.exit_code == _NOT_A_FILE:
            raise FileNotFoundError(f"Sandbox {self.id!r} has no regular file {path!r}")
        if done.cut:
            raise SandboxError(f"The file {path!r} in sandbox {self.id!r} is larger than {max_bytes} bytes")
        if done.exit_code != 0:
            raise SandboxError(f"Sandbox {self.id!r} cannot read {path!r}: {done.text(Stream.STDERR).strip()}")
        return bytes(done.kept[Stream.STDOUT])

    async def download_to(self, path: str, local_path: str | os.PathLike[str]) -> None:
        """Copies a file of the sandbox to ``local_path`` on this machine."""
        content = await self.download(path)
        await asyncio.to_thread(Path(local_path).write_bytes, content)

    def take_notice(self) -> str:
        """Returns, once, the sandbox's own message, which says that processes were killed, and why."""
        return ""

    async def _run(
        self,
        command: Command,
        seconds: float | None,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> _Outcome:
        outcome = _Outcome(max_output_bytes)
        try:
            async with asyncio.timeout(seconds) as limit:
                process = await self.spawn(command, working_dir, env, max_output_bytes + 1)
                try:
                    await outcome.follow(process, stdin)
                finally:
                    await finish(process)
        except TimeoutError:
            if not limit.expired():
                raise
            outcome.is_timed_out = True
        return outcome


class _Outcome:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.kept = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
        self.cut: set[Stream] = set()
        self.exit_code: int | None = None
        self.is_timed_out = False

    def text(self, stream: Stream) -> str:
        text = self.kept[stream].decode("utf-8", "replace")
        return f"{text}\n[cut: more than {self._max_bytes} bytes]" if stream in self.cut else text

    async def follow(self, process: SandboxProcess, stdin: bytes | None) -> None:
        feeding = asyncio.create_task(_feed(process, stdin))
        try:
            while (output := await process.read()) is not None:
                self._keep(output)
            self.exit_code = await process.exit_code()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    def _keep(self, output: Output) -> None:
        kept = self.kept[output.stream]
        room = self._max_bytes - len(kept)
        kept += output.data[:room]
        if len(output.data) > room:
            self.cut.add(output.stream)


async def _feed(process: SandboxProcess, stdin: bytes | None) -> None:
    if stdin:
        await process.write(stdin)
    await process.close_input()


async def finish(process: SandboxProcess) -> None:
    """Closes a process and waits briefly for its end, even while the calling task is being cancelled."""
    closing = asyncio.ensure_future(process.close())
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(closing), _GRACE_SECONDS)


@cache
def program_source(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def python_command(option: str, source: str, *arguments: str) -> list[str]:
    """Returns the command that runs Python source in the sandbox. Images have different names for Python."""
    start = f'exec "$(command -v python3 || command -v python || echo python3)" {option} -c "$@"'
    return ["/bin/sh", "-c", start, "sh", source, *arguments]


class SandboxProvider(ABC):
    """Makes sandboxes of one kind. ``name`` is the name of the kind for ``sandbox_provider=`` and ``NIGHTJAR_SANDBOX``.

    Example:
        >>> class MyProvider(SandboxProvider):
        ...     name = "mine"
        ...     def new_sandbox(self, request: CreateSandboxRequest) -> Sandbox: ...
    """

    name: str

    @abstractmethod
    def new_sandbox(self, request: CreateSandboxRequest) -> Sandbox:
        """Returns a sandbox that is not started yet. Raises ``SandboxRefusedError`` if this machine cannot start it."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Releases connections."""
