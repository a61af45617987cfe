"""Publishes the results of runs whose process is gone. Each run is published in a separate process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nightjar.engine.runs import Whereabouts
from nightjar.hosting.processes import spawn
from nightjar.hosting.server import PrefectApi

_WAIT_SECONDS = 30.0
_SECRETS = "/block_types/slug/nightjar-environment-secrets/block_documents/name"


class LostResults:
    def __init__(self, api: PrefectApi, log: Path) -> None:
        self._api = api
        self._log = log
        self._seen: set[str] = set()
        self._publishing: subprocess.Popen[bytes] | None = None

    def publish(self) -> Iterator[str]:
        if self._publishing is not None and self._publishing.poll() is None:
            return
        for run in self._api.flow_runs(states=("CRASHED", "CANCELLED"), sort="END_TIME_DESC"):
            is_new = run["state_id"] not in self._seen
            self._seen.add(run["state_id"])
            where = Whereabouts.from_labels(run["labels"])
            if is_new and where is not None and where.is_unpublished():
                self._publishing = self._start(where, run["parameters"].get("secrets"))
                yield f"The finished rollouts of run {run['name']!r} ({run['id']}) are being published."
                return

    def wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            if self._publishing is not None:
                self._publishing.wait(_WAIT_SECONDS)

    def _start(self, where: Whereabouts, secrets: str | None) -> subprocess.Popen[bytes]:
        warehouse = ["--warehouse", where.warehouse] if where.warehouse else []
        block = self._api.get(f"{_SECRETS}/{secrets}?include_secrets=true") if secrets else None
        variables = block["data"]["values"] if block else {}
        return spawn(self._log, ("nightjar", "publish", where.run_dir, *warehouse), variables, where.folder)
