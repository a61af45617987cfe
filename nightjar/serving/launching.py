"""Starts the server of the web view, and says where it is."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn

from nightjar.config import RunConfig
from nightjar.errors import ServiceError
from nightjar.serving.access import LOOPBACK, Access
from nightjar.serving.app import create_app
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading import process

PORT = 4280
_TRIED = 20
_ENDING_SECONDS = 5
"""How long pages that are being sent keep the server from ending."""


def serve(
    warehouse: Warehouse,
    host: str,
    port: int | None,
    announce: Callable[[str], None],
    command_of: Callable[[RunConfig], Sequence[str]],
) -> None:
    """Serves the web view until Ctrl-C.

    Args:
        warehouse: what it shows.
        host: the address that it listens at; on any but this machine's own, a token is asked for.
        port: None for 4280, or the next one that is free.
        announce: is given the address of the first page, when the server listens.
        command_of: returns the words that start a run.

    Raises:
        ServiceError: the address or port cannot be had.
    """
    is_own = host == "localhost" or _is_loopback(host)
    access = Access(tuple(dict.fromkeys((*LOOPBACK, host)))) if is_own else Access((), secrets.token_urlsafe(24))
    listening = _listen(host, port)
    is_any = host in {"0.0.0.0", "::"}  # noqa: S104 - nothing is bound here
    name = socket.gethostname() if is_any else f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}/"
    announce(address if access.token is None else f"{address}?token={access.token}")
    app = create_app(warehouse, access, command_of)
    server = _Server(
        uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=_ENDING_SECONDS)
    )
    app.state.is_ending = lambda: server.should_exit
    server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Ends although statements are being answered."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stops these, too."""
        super().handle_exit(sig, frame)
        process.stop()


def _listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in range(PORT, PORT + _TRIED) if port is None else [port]:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, tried))
        except OSError as error:
            listening.close()
            failed = error
        else:
            listening.listen()  # who follows the address at once waits until it is answered
            return listening
    raise ServiceError(f"Cannot listen at {host}, port {port or PORT}: {failed.strerror}. Choose another: --port 0")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
