"""Which Prefect server there is, and the settings that Nightjar uses Prefect with."""

from __future__ import annotations

import os
import tomllib
from http import HTTPStatus
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

LOCAL_API = "http://127.0.0.1:4200/api"
_TIMEOUT_SECONDS = 2.0

SETTINGS = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",  # the display shows how far the run is
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",  # log lines of threads that belong to no run
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # logs an error where there is no network
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # a loaded machine takes longer than 20 s
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
    headers = {}
    if key := os.environ.get("PREFECT_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = Request(f"{api_url}/health", headers=headers)  # noqa: S310 - the user's own setting
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310
            return bool(reply.status == HTTPStatus.OK)
    except (URLError, OSError, ValueError):
        return False


def find_prefect_api() -> str | None:
    """Returns the URL of the server that is configured, or that runs on this machine, if it answers."""
    url = configured_prefect_api() or LOCAL_API
    return url if prefect_answers(url) else None
