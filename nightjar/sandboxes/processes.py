"""Reads the output of commands as frames, and runs the commands of local sandboxes and of containers.

Frames have the format of Docker's attached streams: a stream number, three zero bytes, four bytes of length, and the
data. The writer is not trusted, so no memory is allocated for an announced length.
"""

from __future__ import annotations

import asyncio
import marshal
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from nightjar.errors import SandboxError
from nightjar.sandboxes.engine import Engine
from nightjar.sandboxes.sandbox import Output, SandboxProcess, Stream

_HEADER = struct.Struct(">B3sI")
_CHUNK_BYTES = 65536
_INPUT, _EXIT = 0, 3
_END_SECONDS = 5.0
_POLL_SECONDS = 0.01
KILLED = 137
"""Exit code of a command that SIGKILL ended."""


class FrameReader:
    """Splits the bytes that ``receive`` returns into frames. Permits only the given stream numbers."""

    def __init__(self, receive: Callable[[int], Awaitable[bytes]], streams: set[int]) -> None:
        self._receive = receive
        self._streams = streams
        self._stream = 0
        self._left = 0

    async def read(self) -> tuple[int, bytes] | None:
        """Returns a stream number and the next data of this stream, or None at the end."""
        while not self._left:
            header = b""
            while len(header) < _HEADER.size:
                data = await self._receive(_HEADER.size - len(header))
                if not data:
                    return None
                header += data
            self._stream, zeros, self._left = _HEADER.unpack(header)
            if self._stream not in self._streams or zeros != b"\0\0\0":
                raise SandboxError(f"A sandbox violated the protocol of its output: header {header!r}")
        data = await self._receive(min(self._left, _CHUNK_BYTES))
        self._left -= len(data)
        return (self._stream, data) if data else None


def frame(stream: int, data: bytes) -> bytes:
    return _HEADER.pack(stream, b"\0\0\0", len(data)) + data


class LocalProcess(SandboxProcess):
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = FrameReader(self._receive, {*Stream, _EXIT})
        self._exit_code: int | None = None

    async def read(self) -> Output | None:
        piece = None if self._exit_code is not None else await self._frames.read()
        if piece is None:
            return None
        stream, data = piece
        if stream != _EXIT:
            return Output(Stream(stream), data)
        self._exit_code = struct.unpack(">i", data)[0] if len(data) == struct.calcsize(">i") else KILLED
        return None

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), _CHUNK_BYTES):
            await self._send(frame(_INPUT, data[start : start + _CHUNK_BYTES]))

    async def close_input(self) -> None:
        await self._send(frame(_INPUT, b""))

    async def exit_code(self) -> int:
        """Returns the exit code. If the command killed its own runner, the exit code is 137."""
        return KILLED if self._exit_code is None else self._exit_code

    async def close(self) -> None:
        """Closes the socket. If the command is still running, waits until its runner has killed the command."""
        if self._connection.fileno() < 0:
            return
        try:
            if self._exit_code is None:
                self._connection.shutdown(socket.SHUT_WR)
                while await self._receive(_CHUNK_BYTES):
                    pass
        except OSError:
            pass
        finally:
            self._connection.close()

    async def request(self, argv: list[str], cwd: str, env: Mapping[str, str], max_bytes: int | None) -> None:
        request = marshal.dumps({"argv": argv, "cwd": cwd, "env": dict(env), "max_bytes": max_bytes})
        await self._send(struct.pack(">I", len(request)) + request)

    async def _send(self, data: bytes) -> None:
        with suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._connection, data)

    async def _receive(self, size: int) -> bytes:
        with suppress(ConnectionError):
            return await asyncio.get_running_loop().sock_recv(self._connection, size)
        return b""


class ContainerProcess(SandboxProcess):
    """A command in a container. ``connection`` is the SDK's result of ``exec_start(..., socket=True)``.

    ``kill`` kills the command with all processes that it started.
    """

    def __init__(self, connection: Any, engine: Engine, exec_id: str, kill: Callable[[], Awaitable[None]]) -> None:
        self._wrapper = connection
        self._connection: socket.socket = getattr(connection, "_sock", connection)
        self._engine = engine
        self._exec_id = exec_id
        self._kill = kill
        self._is_plain = not isinstance(self._connection, ssl.SSLSocket) and isinstance(self._connection, socket.socket)
        if self._is_plain:
            self._connection.setblocking(False)
        self._early = _read_with_header(connection) if self._is_plain else b""
        self._frames = FrameReader(self._receive, set(Stream))
        self._has_ended = False

    async def read(self) -> Output | None:
        piece = None if self._has_ended else await self._frames.read()
        self._has_ended = piece is None
        return None if piece is None else Output(Stream(piece[0]), piece[1])

    async def write(self, data: bytes) -> None:
        with suppress(ConnectionError):
            if self._is_plain:
                await asyncio.get_running_loop().sock_sendall(self._connection, data)
            else:
                await self._engine.run(self._connection.sendall, data)

    async def close_input(self) -> None:
        if self._is_plain:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)

    async def exit_code(self) -> int:
        """Returns the exit code. The daemon knows the exit code shortly after the output has ended."""
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            try:
                found = await self._engine.run(self._engine.api.exec_inspect, self._exec_id)
            except Exception as error:
                raise SandboxError(f"A container has ended: {error}") from error
            if not found["Running"]:
                return KILLED if found["ExitCode"] is None else int(found["ExitCode"])
            await asyncio.sleep(_POLL_SECONDS)
        return KILLED

    async def close(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            await self._kill()
        self._connection.close()
        self._wrapper.close()

    async def leave(self) -> None:
        """Closes the process's input and the connection to it. The processes that it started go on."""
        await self.close_input()
        self._has_ended = True
        await self.close()

    async def _receive(self, size: int) -> bytes:
        if self._early:
            early, self._early = self._early[:size], self._early[size:]
            return early
        with suppress(ConnectionError, ValueError):
            if self._is_plain:
                return await asyncio.get_running_loop().sock_recv(self._connection, size)
            return bytes(await self._engine.run(self._connection.recv, size))
        return b""


def _read_with_header(connection: Any) -> bytes:
    """Returns output that arrived in one packet with the daemon's response. The SDK leaves this output in a buffer."""
    try:
        found = connection._response.raw._fp.fp.read1()  # noqa: SLF001 - the SDK has no other way to it
    except (AttributeError, OSError):
        return b""
    return bytes(found or b"")
