"""Which Prefect server there is, and the settings that Nightjar uses Prefect with."""

from __future__ import annotations

import os
import tomllib
from base64 import b64encode
from http import HTTPStatus
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from nightjar.errors import ServiceError
from nightjar.hosting.state import read_state

_TIMEOUT_SECONDS = 10.0

SETTINGS = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # the least; four that stay away are the end of a run (heartbeats.py)
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",  # the display shows how far the run is
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",  # log lines of threads that belong to no run
    # Kept on disk, the slots of deployments with a limit survive a server that is started again, and so do their runs
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # logs an error where there is no network
    # Task runs are recorded together: one transaction for each lets SQLite refuse others, which then wait for seconds
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
"""Environment variables, which Prefect reads when it is imported."""


def configured_prefect_api() -> str | None:
    """Returns the URL in ``PREFECT_API_URL`` or in Prefect's active profile; None where there is none."""
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


def prefect_answers(api_url: str) -> bool:
    """Says whether a Prefect server answers at this URL."""
    request = Request(f"{api_url}/health", headers=authorization())  # noqa: S310 - the user's own setting
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310
            return bool(reply.status == HTTPStatus.OK)
    except (URLError, OSError, ValueError):
        return False


def authorization() -> dict[str, str]:
    """Returns the header that Prefect's cloud, or a server behind a password, asks for."""
    if key := os.environ.get("PREFECT_API_KEY"):
        return {"Authorization": f"Bearer {key}"}
    if password := os.environ.get("PREFECT_API_AUTH_STRING"):
        return {"Authorization": f"Basic {b64encode(password.encode()).decode()}"}
    return {}


def find_prefect_api(url: str | None = None) -> str | None:
    """Returns the URL of the server to use: the one that is named or configured, else that of ``nightjar up``.

    Args:
        url: named on the command line.

    Returns:
        None where none is configured, and ``nightjar up`` runs none.

    Raises:
        ServiceError: the one that is named or configured does not answer.
    """
    chosen = _api_url(url) if url else configured_prefect_api()
    if chosen is None:
        up = read_state()
        return up.api_url if up is not None and prefect_answers(up.api_url) else None
    if not prefect_answers(chosen):
        raise ServiceError(
            f"Prefect's server at {chosen} does not answer. Start it, name another one with --prefect-url, or run "
            "without Prefect: --direct"
        )
    return chosen


def _api_url(url: str) -> str:
    """Returns the URL of the API of a server, also where that of its UI was typed."""
    plain = url.rstrip("/")
    return plain if plain.endswith("/api") or "/api/" in plain else f"{plain}/api"


def page_of(flow_run_id: str, api_url: str) -> str:
    """Returns the page of a flow run in the UI of a server, or in Prefect's cloud."""
    ui = os.environ.get("PREFECT_UI_URL") or api_url.removesuffix("/api").replace(
        "https://api.prefect.cloud/api/accounts/", "https://app.prefect.cloud/account/"
    ).replace("/workspaces/", "/workspace/")
    return f"{ui}/runs/flow-run/{flow_run_id}"
