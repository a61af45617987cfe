"""Prefect's server over HTTP, for what has to be quick: importing Prefect takes 2.5 s."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from nightjar.errors import ServiceAwayError, ServiceError
from nightjar.hosting.server import authorization

_TIMEOUT_SECONDS = 15.0
_TRIES = 5
_PAUSE_SECONDS = 1.0
_AWAY = {429, 502, 503, 504}
"""Status codes of a server, or of what stands before it, that has no time."""


class PrefectApi:
    """The API of one server.

    Args:
        url: ends with ``/api``, or names a workspace of Prefect's cloud.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> Any:
        """Returns what is at a path; None where there is nothing.

        Raises:
            ServiceAwayError: the server does not answer, or has no time.
            ServiceError: it refuses.
        """
        return self._call("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Returns the answer to a body; as for ``get``."""
        return self._call("POST", path, body)

    def delete(self, path: str) -> None:
        """Removes what is at a path, if there is something; errors as for ``get``."""
        self._call("DELETE", path, None)

    def set_state(self, flow_run_id: str, state: str, message: str) -> bool:
        """Proposes a state for a flow run, and says whether the server accepted it.

        Args:
            flow_run_id: the run.
            state: its type, such as ``CRASHED``.
            message: why.
        """
        proposed = {"type": state, "name": state.capitalize(), "message": message}
        answer = self.post(f"/flow_runs/{flow_run_id}/set_state", {"state": proposed, "force": False})
        return answer is not None and answer["status"] == "ACCEPT"

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Changes what is at a path; as for ``get``."""
        return self._call("PATCH", path, body)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **authorization()}
        request = Request(f"{self.url}{path}", data, headers, method=method)  # noqa: S310 - the user's own setting
        for left in reversed(range(_TRIES)):
            try:
                with urlopen(request, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310
                    content = reply.read()
                    return json.loads(content) if content else None
            except HTTPError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    return None
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE or not left:  # its database is busy
                    kind = ServiceAwayError if error.code in _AWAY else ServiceError
                    raise kind(f"Prefect's server at {self.url} refused {path}: {_reason(error)}") from error
            except (URLError, OSError, ValueError, HTTPException) as error:
                raise ServiceAwayError(f"Prefect's server at {self.url} does not answer: {error}") from error
            time.sleep(_PAUSE_SECONDS)
        return None


def _reason(error: HTTPError) -> str:
    """Returns what the server says of an error, on one line."""
    try:
        said = json.loads(error.read()).get("detail")
    except (OSError, ValueError, AttributeError):
        said = None
    return " ".join(str(said or error).split())
