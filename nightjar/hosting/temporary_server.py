"""A Prefect server for one command: ``python -P -m nightjar.hosting.temporary_server PORT``.

It ends when its standard input does, so with the process that started it, however that ends.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from functools import cache

from nightjar.errors import ServiceError
from nightjar.home import home
from nightjar.hosting.processes import last_line, wait_until
from nightjar.hosting.server import prefect_answers

_START_SECONDS = 180.0
_LOG = "temporary-server.log"


class TemporaryServer:
    """A Prefect server that lasts as long as this process."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.api_url = f"http://127.0.0.1:{port}/api"
        self._log = home() / _LOG
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-P", "-m", __name__, str(port)],
                stdin=subprocess.PIPE,  # is closed when this process ends
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C reaches the run alone
            )

    def wait(self) -> None:
        """Waits until it answers.

        Raises:
            ServiceError: it does not.
        """
        complaint = f"Prefect's temporary server does not answer; see {self._log}"
        wait_until(lambda: prefect_answers(self.api_url) or self._process.poll() is not None, _START_SECONDS, complaint)
        if self._process.poll() is not None:
            raise ServiceError(f"Prefect's temporary server did not start: {last_line(self._log)}; see {self._log}")


@cache
def temporary_server() -> TemporaryServer:
    """Starts the server of this process; the same one each time."""
    return TemporaryServer()


def is_temporary(api_url: str) -> bool:
    """Says whether a URL is that of the server of this process, whose pages nobody can look at later."""
    return temporary_server.cache_info().currsize > 0 and temporary_server().api_url == api_url


def main() -> None:
    """Runs a server until standard input ends."""
    command = [sys.executable, "-P", "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", sys.argv[1]]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as server:  # noqa: S603
        sys.stdin.read()
        server.terminate()


if __name__ == "__main__":
    main()
