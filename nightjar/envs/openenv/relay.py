"""The relay inside a sandbox: carries messages between the host and an OpenEnv server on the sandbox's own loopback.

A sandbox has no network, so the host cannot reach the server in it. This file runs beside the server instead, as
``python3 -c SOURCE PORT``, and is all that it needs: the standard library of any Python from 3.8 on. The host writes a
line of JSON for each request, and reads a line for its answer, which has the request's ``id``::

    {"id": 1, "do": "get", "path": "/health", "seconds": 2}   {"id": 1, "status": 200, "body": {"status": "healthy"}}
    {"id": 2, "do": "connect", "seconds": 10}                 {"id": 2, "via": "websocket"}, or {"id": 2, "via": "http"}
    {"id": 3, "do": "send", "message": {...}, "seconds": 60}  {"id": 3, "message": {...}}
    anything that fails                                       {"id": 4, "failure": "ConnectionRefusedError: ..."}

Messages are those of OpenEnv's ``/ws``: ``{"type": "reset" | "step" | "mcp", "data": {...}}``. A world lives as long as
its WebSocket (RFC 6455); with the plain ``/reset`` and ``/step`` of such a server each request gets a new world.
Servers without ``/ws`` keep their one world between requests, and are asked over these.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import struct
import sys
from typing import Any, BinaryIO

HOST = "127.0.0.1"
MAX_MESSAGE_BYTES = 100 * 2**20
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
PATHS = {"reset": "/reset", "step": "/step", "mcp": "/mcp"}
UNPROCESSABLE = 422
BAD_REQUEST = 400


class NoWebSocketError(Exception):
    """The server has no ``/ws``."""


def frame(kind: int, payload: bytes) -> bytes:
    """Returns a client's frame: whole, and masked as the protocol wants it.

    Example:
        >>> len(frame(TEXT, b"hello"))  # two bytes of header and four of mask before it
        11
    """
    size = len(payload)
    if size < 126:  # noqa: PLR2004 - RFC 6455, 5.2
        header = struct.pack(">BB", 128 | kind, 128 | size)
    elif size < 2**16:
        header = struct.pack(">BBH", 128 | kind, 128 | 126, size)
    else:
        header = struct.pack(">BBQ", 128 | kind, 128 | 127, size)
    mask = os.urandom(4)
    stretched = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(stretched, "big")
    return header + mask + masked.to_bytes(size, "big")


class Session:
    """A WebSocket to the server, and with it a world of its own."""

    def __init__(self, port: int, seconds: float) -> None:
        self.socket = socket.create_connection((HOST, port), seconds)
        self.stream: BinaryIO = self.socket.makefile("rb")
        try:
            self.shake_hands(port)
        except BaseException:
            self.close()
            raise

    def shake_hands(self, port: int) -> None:
        """Asks the server to speak WebSocket.

        Raises:
            NoWebSocketError: it does not.
        """
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            "GET /ws HTTP/1.1", f"Host: {HOST}:{port}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "",
        )  # fmt: skip
        self.socket.sendall("\r\n".join(lines).encode())
        status = self.stream.readline(1000).split()
        if len(status) < 2 or status[1] != b"101":  # noqa: PLR2004 - HTTP/1.1 101 ...
            raise NoWebSocketError(b" ".join(status).decode("utf-8", "replace"))
        while self.stream.readline(65536).strip():
            pass

    def ask(self, message: dict[str, Any], seconds: float) -> Any:
        """Sends a message and returns the answer."""
        self.socket.settimeout(seconds)
        self.socket.sendall(frame(TEXT, json.dumps(message).encode()))
        return json.loads(self.receive())

    def receive(self) -> bytes:
        """Returns the next message; answers pings on the way."""
        message = b""
        while True:
            first, second = self.exactly(2)
            size = second & 127
            if size >= 126:  # noqa: PLR2004 - RFC 6455, 5.2
                size = int.from_bytes(self.exactly(2 if size == 126 else 8), "big")  # noqa: PLR2004
            if size + len(message) > MAX_MESSAGE_BYTES:
                raise ConnectionError(f"a message is larger than {MAX_MESSAGE_BYTES} bytes")
            payload, kind = self.exactly(size), first & 15
            if kind == CLOSE:
                raise ConnectionError(f"the server ended the session: {payload[2:].decode('utf-8', 'replace')}")
            if kind == PING:
                self.socket.sendall(frame(PONG, payload))
            elif kind != PONG:
                message += payload
                if first & 128:
                    return message

    def exactly(self, size: int) -> bytes:
        """Reads so many bytes."""
        data = self.stream.read(size)
        if len(data) < size:
            raise ConnectionError("the server ended the session")
        return data

    def close(self) -> None:
        """Ends the session."""
        self.stream.close()
        self.socket.close()


class Relay:
    """Does what the host asks for.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.session: Session | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer to a request of the host."""
        seconds = float(request["seconds"])
        if request["do"] == "get":
            status, body = self.fetch("GET", request["path"], None, seconds)
            return {"status": status, "body": body}
        if request["do"] == "connect":
            return {"via": self.connect(seconds)}
        return {"message": self.send(request["message"], seconds)}

    def fetch(self, method: str, path: str, data: Any, seconds: float) -> tuple[int, Any]:
        """Returns the status and the body of a plain request; a body that is no JSON as text."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=seconds)
        try:
            body = None if data is None else json.dumps(data)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read(MAX_MESSAGE_BYTES)
        finally:
            connection.close()
        try:
            return response.status, json.loads(content)
        except ValueError:
            return response.status, content.decode("utf-8", "replace")

    def connect(self, seconds: float) -> str:
        """Starts a session, after the end of an earlier one."""
        if self.session is not None:
            self.session.close()
            self.session = None
        try:
            self.session = Session(self.port, seconds)
        except NoWebSocketError:
            return "http"
        return "websocket"

    def send(self, message: dict[str, Any], seconds: float) -> Any:
        """Returns the server's answer to a message."""
        if self.session is not None:
            return self.session.ask(message, seconds)
        kind, data = message["type"], message["data"]
        status, body = self.fetch("POST", PATHS[kind], {"action": data} if kind == "step" else data, seconds)
        if status < BAD_REQUEST:
            return {"type": "mcp" if kind == "mcp" else "observation", "data": body}
        reason = body.get("detail", body) if isinstance(body, dict) else body
        code = "VALIDATION_ERROR" if status == UNPROCESSABLE else f"HTTP {status}"
        text = reason if isinstance(reason, str) else json.dumps(reason)
        return {"type": "error", "data": {"message": text, "code": code}}


def main() -> None:
    """Answers the host until it closes the input."""
    relay = Relay(int(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = relay.answer(request)
        except Exception as error:  # noqa: BLE001 - the host is told
            answer = {"failure": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps({"id": request["id"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
