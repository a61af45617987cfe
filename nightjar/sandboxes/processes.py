"""Commands in sandboxes, as this side of the connection to them sees them.

Output comes as frames, in the format of Docker's attached streams, which is our supervisor's too: a stream number,
three zero bytes, four bytes of length, and the data. Whoever writes it is not trusted: data is handed on in pieces as
they come, so that no announced length is ever held in memory.
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
from nightjar.sandboxes.sandbox import Output, SandboxProcess, Stream

_HEADER = struct.Struct(">B3sI")
_CHUNK_BYTES = 65536
_INPUT, _EXIT = 0, 3
_KILLED = 137
_END_SECONDS = 5.0
_POLL_SECONDS = 0.01


class FrameReader:
    """Takes frames apart: of these streams, out of what ``receive`` returns for a number of bytes, at the most."""

    def __init__(self, receive: Callable[[int], Awaitable[bytes]], streams: set[int]) -> None:
        self._receive = receive
        self._streams = streams
        self._stream = 0
        self._left = 0

    async def read(self) -> tuple[int, bytes] | None:
        """Returns a stream number and the next data of it; None at the end."""
        while not self._left:
            header = b""
            while len(header) < _HEADER.size:
                data = await self._receive(_HEADER.size - len(header))
                if not data:
                    return None
                header += data
            self._stream, zeros, self._left = _HEADER.unpack(header)
            if self._stream not in self._streams or zeros != b"\0\0\0":
                raise SandboxError(f"A sandbox broke the protocol of its output: header {header!r}")
        data = await self._receive(min(self._left, _CHUNK_BYTES))
        self._left -= len(data)
        return (self._stream, data) if data else None


def frame(stream: int, data: bytes) -> bytes:
    """Returns data as one frame."""
    return _HEADER.pack(stream, b"\0\0\0", len(data)) + data


class LocalProcess(SandboxProcess):
    """A command in a local sandbox: the socket to its runner."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = FrameReader(self._receive, {*Stream, _EXIT})
        self._exit_code: int | None = None

    async def read(self) -> Output | None:
        """Returns the next piece of output; None when the process has ended."""
        piece = None if self._exit_code is not None else await self._frames.read()
        if piece is None:
            return None
        stream, data = piece
        if stream != _EXIT:
            return Output(Stream(stream), data)
        self._exit_code = struct.unpack(">i", data)[0] if len(data) == struct.calcsize(">i") else _KILLED
        return None

    async def write(self, data: bytes) -> None:
        """Writes to its standard input; what it does not read any more is lost."""
        for start in range(0, len(data), _CHUNK_BYTES):
            await self._send(frame(_INPUT, data[start : start + _CHUNK_BYTES]))

    async def close_input(self) -> None:
        """Ends its standard input."""
        await self._send(frame(_INPUT, b""))

    async def exit_code(self) -> int:
        """Returns the exit code; 137 where the command ended its own runner."""
        return _KILLED if self._exit_code is None else self._exit_code

    async def close(self) -> None:
        """Closes the socket; a runner whose command is still running kills it, and is waited for."""
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
        """Says what the runner is to run."""
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
    """A command in a container.

    ``connection`` is what the SDK returns for ``exec_start(..., socket=True)``; ``inspect`` asks the daemon about the
    command, ``kill`` kills it with what it started, and ``in_thread`` runs what blocks.
    """

    def __init__(
        self,
        connection: Any,
        inspect: Callable[[], Mapping[str, Any]],
        kill: Callable[[], Awaitable[None]],
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._wrapper = connection
        self._connection: socket.socket = getattr(connection, "_sock", connection)
        self._inspect = inspect
        self._kill = kill
        self._in_thread = in_thread
        self._is_plain = not isinstance(self._connection, ssl.SSLSocket) and isinstance(self._connection, socket.socket)
        if self._is_plain:
            self._connection.setblocking(False)
        self._early = _read_with_header(connection) if self._is_plain else b""
        self._frames = FrameReader(self._receive, set(Stream))
        self._has_ended = False

    async def read(self) -> Output | None:
        """Returns the next piece of output; None when the process has ended."""
        piece = None if self._has_ended else await self._frames.read()
        self._has_ended = piece is None
        return None if piece is None else Output(Stream(piece[0]), piece[1])

    async def write(self, data: bytes) -> None:
        """Writes to its standard input; what it does not read any more is lost."""
        with suppress(ConnectionError):
            if self._is_plain:
                await asyncio.get_running_loop().sock_sendall(self._connection, data)
            else:
                await self._in_thread(self._connection.sendall, data)

    async def close_input(self) -> None:
        """Ends its standard input, where the connection can be closed by halves."""
        if self._is_plain:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)

    async def exit_code(self) -> int:
        """Returns the exit code, which the daemon knows a moment after the output has ended."""
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            try:
                found = await self._in_thread(self._inspect)
            except Exception as error:
                raise SandboxError(f"A container has ended: {error}") from error
            if not found["Running"]:
                return _KILLED if found["ExitCode"] is None else int(found["ExitCode"])
            await asyncio.sleep(_POLL_SECONDS)
        return _KILLED

    async def close(self) -> None:
        """Closes the connection; a command that is still running is killed."""
        if not self._has_ended:
            self._has_ended = True
            await self._kill()
        self._connection.close()
        self._wrapper.close()

    async def _receive(self, size: int) -> bytes:
        if self._early:
            early, self._early = self._early[:size], self._early[size:]
            return early
        with suppress(ConnectionError, ValueError):
            if self._is_plain:
                return await asyncio.get_running_loop().sock_recv(self._connection, size)
            return bytes(await self._in_thread(self._connection.recv, size))
        return b""


def _read_with_header(connection: Any) -> bytes:
    """Returns the output that came in one packet with the daemon's answer: the SDK leaves it in a buffer."""
    try:
        found = connection._response.raw._fp.fp.read1()  # noqa: SLF001 - the SDK has no other way to it
    except (AttributeError, OSError):
        return b""
    return bytes(found or b"")
