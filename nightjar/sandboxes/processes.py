"""Reads the output of commands as frames, and runs the commands of local sandboxes.

Frames have the format of Docker's attached streams: a stream number, three zero bytes, four bytes of length, and the
data. The writer is not trusted, so no memory is allocated for an announced length.
"""

from __future__ import annotations

import asyncio
import marshal
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from nightjar.errors import SandboxError
from nightjar.sandboxes.sandbox import Output, SandboxProcess, Stream

_HEADER = struct.Struct(">B3sI")
_CHUNK_BYTES = 65536
_INPUT, _EXIT = 0, 3
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
