"""What runs had finished whose process is gone: it is added up and published, each by a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from nightjar.hosting.api import PrefectApi
from nightjar.hosting.naming import FLOWS
from nightjar.hosting.processes import spawn
from nightjar.runs import Whereabouts

_MOST = 200
_WAIT_SECONDS = 30.0
_SECRETS = "/block_types/slug/nightjar-environment-secrets/block_documents/name"


class LostResults:
    """Publishes them, each time it is asked, one after the other.

    Args:
        api: the server.
        log: where it is written how that went.
    """

    def __init__(self, api: PrefectApi, log: Path) -> None:
        self._api = api
        self._log = log
        self._seen: set[str] = set()
        self._publishing: subprocess.Popen[bytes] | None = None

    def publish(self) -> Iterator[str]:
        """Starts to publish what one more run of this machine has finished, and says so.

        Raises:
            ServiceError: the server does not answer.
        """
        if self._publishing is not None and self._publishing.poll() is None:
            return
        for run in self._ended():
            self._seen.add(run["state_id"])
            where = Whereabouts.from_labels(run["labels"])
            if where is not None and where.is_unpublished():
                self._publishing = self._start(where, run["parameters"].get("secrets"))
                yield f"What run {run['name']!r} ({run['id']}) had finished is being published."
                return

    def wait(self) -> None:
        """Waits until what was started has ended, for half a minute at the most."""
        with suppress(subprocess.TimeoutExpired):
            if self._publishing is not None:
                self._publishing.wait(_WAIT_SECONDS)

    def _ended(self) -> Iterator[dict[str, Any]]:
        """Yields the runs that were not looked at yet and whose process did not bring them to an end of their own."""
        chosen = {
            "flows": {"name": {"any_": list(FLOWS)}},
            "flow_runs": {"state": {"type": {"any_": ["CRASHED", "CANCELLED"]}}},
            "sort": "END_TIME_DESC",
            "limit": _MOST,
        }
        for run in self._api.post("/flow_runs/filter", chosen) or ():
            if run["state_id"] not in self._seen:
                yield run

    def _start(self, where: Whereabouts, secrets: str | None) -> subprocess.Popen[bytes]:
        warehouse = ["--warehouse", where.warehouse] if where.warehouse else []
        command = ("nightjar", "publish", where.run_dir, *warehouse)
        return spawn(self._log, command, self._variables(secrets), where.folder)

    def _variables(self, secrets: str | None) -> dict[str, str]:
        """Returns the environment variables of the block of secrets that the run named."""
        block = self._api.get(f"{_SECRETS}/{secrets}?include_secrets=true") if secrets else None
        return block["data"]["values"] if block else {}
