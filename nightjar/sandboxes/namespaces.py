"""Starts the first process of a local sandbox in separate namespaces, through bubblewrap, and ends this process.

If root starts a sandbox, the commands run as a second user that exists nowhere else. Then the limit on processes
applies (it does not apply to root), and visible files of root stay read-only. An ordinary user may only map itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nightjar.sandboxes import bubblewrap
from nightjar.sandboxes.memory_limit import ControlGroup, Watched
from nightjar.sandboxes.request import SandboxCreationError, SandboxRefusedError
from nightjar.sandboxes.seccomp import filter_program

_FIRST_USER = 1_879_048_192
_MAX_INFO_BYTES = 4096
_END_SECONDS = 5.0
_POLL_SECONDS = 0.002


@dataclass
class FirstProcess:
    """The first process of a running sandbox. Its standard input is ``control``; its standard error is ``messages``."""

    process: subprocess.Popen[bytes]
    """``bwrap``, which ends after all processes inside. Without isolation, it is the first process itself."""
    control: socket.socket
    messages: IO[bytes]
    pid: int
    """The process id of the first process inside, as seen from outside."""
    descriptor: int | None = None
    """A pidfd of the first process inside. Without isolation, None."""
    limit: ControlGroup | Watched | None = None

    def kill_others(self) -> None:
        """Makes the first process kill all other processes before it starts the next process."""
        with suppress(ProcessLookupError):
            if self.descriptor is None:
                self.process.send_signal(signal.SIGUSR1)
            else:
                signal.pidfd_send_signal(self.descriptor, signal.SIGUSR1)

    def kill(self) -> None:
        self.control.close()
        if self.descriptor is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)

    async def end(self) -> None:
        """Waits for the end without a thread, because no thread can be started while the interpreter shuts down."""
        deadline = time.monotonic() + _END_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(_POLL_SECONDS)
        self.release()

    def release(self) -> None:
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_group(self.process)
        if self.limit is not None:
            self.limit.remove()
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.messages.close()

    def start_error(self) -> SandboxCreationError:
        return _start_error(_text_of(self.messages))


async def start_isolated(
    program: list[str], storage_bytes: int, packages: Mapping[str, Path], installed: bubblewrap.Bubblewrap
) -> FirstProcess:
    """Starts ``program`` in separate namespaces. Raises ``SandboxCreationError`` if ``bwrap`` fails."""
    with ExitStack() as stack:
        control, inside = _pair(stack)
        info, info_inside = _pair(stack)
        block, block_inside = _pair(stack)
        passed = {"info-fd": info_inside.fileno()}
        if os.geteuid() == 0:
            passed["userns-block-fd"] = block_inside.fileno()
        for path, content in bubblewrap.SMALL_FILES.items():
            passed[path] = _file_with(content, stack)
        if (calls := filter_program()) is not None:
            passed["seccomp"] = _file_with(calls, stack)
        command = bubblewrap.command_line(installed, storage_bytes, packages, passed, program)
        process, messages = _start(command, inside, passed.values())
        try:
            for theirs in (inside, info_inside, block_inside):
                theirs.close()
            pid = await _first_pid(info)
            if "userns-block-fd" in passed:
                _map_users(pid)
                block.send(b"1")
            return FirstProcess(process, control.dup(), messages, pid, os.pidfd_open(pid))
        except BaseException as error:
            _kill_group(process)
            text = _text_of(messages)
            messages.close()
            if not isinstance(error, Exception):
                raise
            raise _start_error(text or repr(error)) from error


def start_unisolated(program: list[str]) -> FirstProcess:
    with ExitStack() as stack:
        control, inside = _pair(stack)
        process, messages = _start(program, inside)
        return FirstProcess(process, control.dup(), messages, process.pid)


def _start(command: list[str], inside: socket.socket, passed: Iterable[int] = ()) -> tuple[Any, IO[bytes]]:
    messages = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
    process = subprocess.Popen(  # noqa: S603 - built by this package
        command,
        stdin=inside.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=messages,
        pass_fds=list(passed),
        env={},
        start_new_session=True,
    )
    return process, messages


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills ``bwrap`` and the process that ``bwrap`` is still setting up, which would otherwise wait forever."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start_error(text: str) -> SandboxCreationError:
    problem = f"A local sandbox did not start: {text or 'it ended at once'}"
    if "permi" not in text.lower():
        return SandboxCreationError(problem)
    return SandboxRefusedError(
        f"{problem}. This machine does not let its users make namespaces; docs/guides/sandboxes.md says how to permit "
        "it. Or use containers: sandbox_provider='docker'."
    )


def _text_of(messages: IO[bytes]) -> str:
    with suppress(OSError, ValueError):
        messages.seek(0)
        return messages.read(2000).decode("utf-8", "replace").strip()
    return ""


def _pair(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    stack.callback(ours.close)
    stack.callback(theirs.close)
    return ours, theirs


def _file_with(content: bytes, stack: ExitStack) -> int:
    descriptor = os.memfd_create("nightjar")
    stack.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _first_pid(info: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    received = b""
    while piece := await loop.sock_recv(info, _MAX_INFO_BYTES):
        received += piece
        if received.rstrip().endswith(b"}"):
            return int(json.loads(received)["child-pid"])
    raise SandboxCreationError("bwrap ended before it had made the namespaces")


def _map_users(pid: int) -> None:
    """Maps root to itself, and the sandbox's user to a random user id that exists nowhere else."""
    outside = _FIRST_USER + secrets.randbits(24)
    for name in ("gid_map", "uid_map"):
        Path(f"/proc/{pid}/{name}").write_text(f"0 0 1\n{bubblewrap.USER_ID} {outside} 1\n", "ascii")
