"""``up.json`` in Nightjar's home: what ``nightjar up`` runs, for every command of this user."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from nightjar.errors import ConfigError
from nightjar.home import home


@dataclass(frozen=True)
class ServicesState:
    """What ``nightjar up`` runs.

    Attributes:
        api_url: of its server.
        folder: where its deployments' runs happen.
        work_pool: the pool of its worker.
        services: the process id of each, and how often it was started again.
        view_url: of the web view; None where it is not served.
    """

    api_url: str
    folder: str
    work_pool: str
    services: dict[str, tuple[int, int]]
    view_url: str | None = None


def write_state(state: ServicesState) -> None:
    """Writes it down."""
    _file().write_text(json.dumps(asdict(state)), encoding="utf-8")


def written_at() -> float:
    """Returns when it was written, in seconds since 1970."""
    return _file().stat().st_mtime


def read_state() -> ServicesState | None:
    """Returns it; None where nothing runs."""
    try:
        return ServicesState(**json.loads(_file().read_text(encoding="utf-8")))
    except (OSError, ValueError, ConfigError):
        return None


def forget_state() -> None:
    """Says that nothing runs any more."""
    _file().unlink(missing_ok=True)


def _file() -> Path:
    return home() / "up.json"
