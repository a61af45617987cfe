"""A Prefect server for one command: ``python -P -m nightjar.hosting.temporary_server PORT``.

The server ends when its standard input is closed, and therefore with the process that started it.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache

from nightjar.core.home import home
from nightjar.core.ports import free_port
from nightjar.errors import ServiceError
from nightjar.hosting.processes import last_line, wait_until
from nightjar.hosting.server import prefect_answers, server_command

_START_SECONDS = 180.0
_LOG = "temporary-server.log"


class TemporaryServer:
    def __init__(self) -> None:
        port = free_port()
        self.api_url = f"http://127.0.0.1:{port}/api"
        self._log = home() / _LOG
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-P", "-m", __name__, str(port)],
                stdin=subprocess.PIPE,  # closed when this process ends
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the run
            )

    def wait(self) -> None:
        """Waits until the server answers. Raises ``ServiceError`` if it does not."""
        complaint = f"Prefect's temporary server does not answer; see {self._log}"
        wait_until(lambda: prefect_answers(self.api_url) or self._process.poll() is not None, _START_SECONDS, complaint)
        if self._process.poll() is not None:
            raise ServiceError(f"Prefect's temporary server did not start: {last_line(self._log)}; see {self._log}")


@cache
def temporary_server() -> TemporaryServer:
    return TemporaryServer()


def is_temporary(api_url: str) -> bool:
    return temporary_server.cache_info().currsize > 0 and temporary_server().api_url == api_url


def main() -> None:
    command = server_command(int(sys.argv[1]))
    with subprocess.Popen([sys.executable, "-P", "-m", *command], stdin=subprocess.DEVNULL) as server:  # noqa: S603
        sys.stdin.read()
        server.terminate()


if __name__ == "__main__":
    main()
