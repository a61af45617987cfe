"""Prefect's server: the choice of a server, the settings of a server, and its HTTP API.

The API is called over plain HTTP where start-up time matters: importing Prefect takes 2.5 s.
"""

from __future__ import annotations

import json
import os
import re
import time
import tomllib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from nightjar.core.secret_signs import looks_secret
from nightjar.errors import ConfigError, MissingKeyError, ServiceAwayError, ServiceError
from nightjar.hosting.state import read_state

FLOWS = ("evaluate", "query", "benchmark", "retry-failed", "rescore", "publish-run", "prune", "upkeep", "gate")

POOL = "nightjar"
FOLDER_LABEL = "nightjar/folder"
"""The label of Nightjar's deployments. Its value names the folder in which they were created."""

ENDED = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
MOST_RUNS = 200


def prefixed(name: str, prefix: str) -> str:
    return f"{prefix}-{name}" if prefix else name


_HEALTH_SECONDS = 10.0

HEARTBEATS = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""The shortest time in seconds that Prefect allows. A run ends after four missing heartbeats (``automations.py``)."""

SETTINGS = {
    **HEARTBEATS,
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",  # the display shows progress
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",  # threads that do not belong to a run may log
    # On disk, concurrency slots of deployments survive a restart of the server, and so do their runs
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_WORKER_QUERY_SECONDS": "1",  # a run starts soon after it was submitted
    "PREFECT_API_REQUEST_TIMEOUT": "10",  # a server that hangs counts as away
    "PREFECT_SERVER_EVENTS_MAXIMUM_WEBSOCKET_BACKFILL": "PT10S",  # see core.worker_delays.CANCEL_SECONDS
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # logs an error without a network
    # Task runs are recorded in batches: with a transaction for each, SQLite makes other requests wait for seconds
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
"""Environment variables; Prefect reads them when it is imported."""


def server_command(port: int) -> Sequence[str]:
    """Returns the module that starts Prefect's server, and its arguments."""
    module = "nightjar.hosting.prefect_server"
    return (module, "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port))


_POSTGRESQL = re.compile(r"postgres(ql)?(\+asyncpg)?://")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def database_settings(url: str) -> dict[str, str]:
    """Returns environment variables that make Prefect's server use PostgreSQL. An empty URL means Prefect's choice.

    ``$NAME`` in the URL stands for the value of an environment variable. Raises ``ConfigError`` for the URL of another
    kind of database and for a URL with a password, and ``MissingKeyError`` for a variable that is not set.
    """
    if not url:
        return {}
    if not _POSTGRESQL.match(url):
        raise ConfigError("--database-url must begin with postgresql://")
    if looks_secret(url):
        raise ConfigError(
            "--database-url holds a password, which others on this machine could read. Name the variable that holds "
            "it: 'postgresql://USER:$NAME@HOST/DATABASE'"
        )
    if missing := [name for name in _VARIABLE.findall(url) if name not in os.environ]:
        raise MissingKeyError(missing)
    with_driver = _POSTGRESQL.sub("postgresql+asyncpg://", url)
    full = _VARIABLE.sub(lambda reference: quote(os.environ[reference[1]], safe=""), with_driver)
    return {"PREFECT_SERVER_DATABASE_CONNECTION_URL": full}


def worker_command(work_pool: str) -> Sequence[str]:
    """Returns the module that starts Prefect's worker for processes on this machine, and its arguments."""
    return ("nightjar.hosting.worker", "prefect", "worker", "start", "--pool", work_pool, "--type", "process")


def configured_prefect_api() -> str | None:
    """Returns the URL in ``PREFECT_API_URL`` or in Prefect's active profile, or None if neither is set."""
    if url := os.environ.get("PREFECT_API_URL"):
        return url
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    path = Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml"))
    try:
        profiles = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return None
    name = os.environ.get("PREFECT_PROFILE") or profiles.get("active")
    url = profiles.get("profiles", {}).get(name, {}).get("PREFECT_API_URL")
    return str(url) if url else None


def prefect_answers(api_url: str, seconds: float = _HEALTH_SECONDS) -> bool:
    try:
        request = Request(f"{api_url}/health", headers=authorization())  # noqa: S310 - the user's own setting
        with urlopen(request, timeout=seconds) as reply:  # noqa: S310
            return bool(reply.status == HTTPStatus.OK)
    except (URLError, OSError, ValueError, HTTPException):
        return False


def authorization() -> dict[str, str]:
    """Returns the authorization header for Prefect's cloud, or for a server with a password."""
    if key := os.environ.get("PREFECT_API_KEY"):
        return {"Authorization": f"Bearer {key}"}
    if password := os.environ.get("PREFECT_API_AUTH_STRING"):
        return {"Authorization": f"Basic {b64encode(password.encode()).decode()}"}
    return {}


def find_prefect_api(url: str | None = None) -> str | None:
    """Returns the URL of the server to use: the given or configured one, else the server of ``nightjar up``, or None.

    Raises ``ServiceError`` if the given or configured server does not answer.
    """
    chosen = configured_prefect_api()
    if url:  # of the API or of the UI
        plain = url.rstrip("/")
        chosen = plain if plain.endswith("/api") or "/api/" in plain else f"{plain}/api"
    if chosen is None:
        up = read_state()
        return up.api_url if up is not None and prefect_answers(up.api_url) else None
    if not prefect_answers(chosen):
        raise ServiceError(
            f"Prefect's server at {chosen} does not answer. Start it, name another one with --prefect-url, or run "
            "without Prefect: --direct"
        )
    return chosen


def page_of(flow_run_id: str, api_url: str) -> str:
    ui = os.environ.get("PREFECT_UI_URL") or api_url.removesuffix("/api").replace(
        "https://api.prefect.cloud/api/accounts/", "https://app.prefect.cloud/account/"
    ).replace("/workspaces/", "/workspace/")
    return f"{ui}/runs/flow-run/{flow_run_id}"


_TIMEOUT_SECONDS = 15.0
_TRIES = 5
_PAUSE_SECONDS = 1.0
_AWAY = {429, 502, 503, 504}
"""Status codes of an overloaded server, or of a proxy in front of the server."""


class PrefectApi:
    """The API of one server, whose URL ends with ``/api`` or names a workspace of Prefect's cloud.

    Methods raise ``ServiceAwayError`` if the server does not answer or is overloaded, and ``ServiceError`` if it
    refuses.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> Any:
        """Returns None if there is nothing at the path."""
        return self._call("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Returns None if there is nothing at the path."""
        return self._call("POST", path, body)

    def delete(self, path: str) -> None:
        self._call("DELETE", path, None)

    def flow_runs(self, *, states: Sequence[str] = (), **request: Any) -> list[dict[str, Any]]:
        """Returns flow runs of Nightjar's flows in any of the states. ``request`` overrides fields of the request."""
        chosen = {"state": {"type": {"any_": list(states)}}} if states else {}
        asked = {"flows": {"name": {"any_": list(FLOWS)}}, "flow_runs": chosen, "limit": MOST_RUNS, **request}
        return self.post("/flow_runs/filter", asked) or []

    def set_state(self, flow_run_id: str, state: str, message: str, *, is_forced: bool = False) -> bool:
        """Proposes a state for a flow run, such as ``CRASHED``. Returns whether the server accepted the state.

        The server accepts a state after a final state only if ``is_forced``.
        """
        proposed = {"type": state, "name": state.capitalize(), "message": message}
        answer = self.post(f"/flow_runs/{flow_run_id}/set_state", {"state": proposed, "force": is_forced})
        return answer is not None and answer["status"] == "ACCEPT"

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
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
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE or not left:  # 503: its database is busy
                    kind = ServiceAwayError if error.code in _AWAY else ServiceError
                    raise kind(f"Prefect's server at {self.url} refused {path}: {_reason(error)}") from error
            except (URLError, OSError, ValueError, HTTPException) as error:
                raise ServiceAwayError(f"Prefect's server at {self.url} does not answer: {error}") from error
            time.sleep(_PAUSE_SECONDS)
        return None


def _reason(error: HTTPError) -> str:
    try:
        said = json.loads(error.read()).get("detail")
    except (OSError, ValueError, AttributeError):
        said = None
    return " ".join(str(said or error).split())
