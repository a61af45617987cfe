"""Finds free ports of this machine and listens on them."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from nightjar.errors import ServiceError

LOOPBACK = "127.0.0.1"


def free_port(host: str = LOOPBACK) -> int:
    """Returns a port that the operating system chooses. Another process may take the port before it is used."""
    with socket.socket() as free:
        free.bind((host, 0))
        port: int = free.getsockname()[1]
        return port


def first_free_port(ports: Iterable[int]) -> int | None:
    for port in ports:
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    return None


def listen(host: str, ports: Iterable[int], backlog: int = socket.SOMAXCONN) -> socket.socket:
    """Listens on the first free port, where 0 means any port. Raises ``ServiceError`` if no port is free."""
    ports = list(ports)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            listening.close()
            failed = error
        else:
            listening.listen(backlog)
            return listening
    raise ServiceError(f"Cannot listen at {host}, port {ports[0]}: {failed.strerror}. Choose another port: --port 0")
