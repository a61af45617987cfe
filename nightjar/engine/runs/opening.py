"""``OpenRun``: a run while this process writes it.

It locks the run's directory first and writes ``metadata.json`` last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson

from nightjar.core.rollout.records import Key
from nightjar.engine.runs.directory import FORMAT, RunDirectory
from nightjar.engine.runs.identity import check_recorded, check_same, settle_id
from nightjar.engine.runs.journal import Journal, MemoryJournal
from nightjar.engine.runs.metadata import RunMetadata
from nightjar.engine.runs.repair import is_of_other_code
from nightjar.engine.runs.summary import Summary, summarize_rows
from nightjar.errors import RunDirectoryError

logger = logging.getLogger(__name__)


class OpenRun:
    """A run that is open in this process. Its directory is locked, its settings are compared, and its journal is open.

    If ``directory`` is None, the run is kept in memory. Raises ``ResumeMismatchError`` and ``RunLockedError``.
    """

    def __init__(
        self,
        directory: RunDirectory | None,
        metadata: RunMetadata,
        config: Mapping[str, Any],
        identity: Mapping[str, Any],
        hashes: Mapping[int, str],
        tolerated_failures: float = 0.0,
    ) -> None:
        self.directory = directory
        self.metadata = metadata
        self.before: dict[str, Any] = {}
        self.outdated: frozenset[Key] = frozenset()
        self.error: BaseException | None = None
        self._config = config
        self._identity = orjson.loads(orjson.dumps(identity, default=str, option=orjson.OPT_NON_STR_KEYS))  # as written
        self._hashes = hashes
        self._tolerated_failures = tolerated_failures
        self._opened_at = time.monotonic()
        self._closing = ExitStack()
        with ExitStack() as opening:
            self.journal: Journal | MemoryJournal
            if directory is None:
                self.journal = MemoryJournal(hashes.__getitem__, metadata.state_columns)
            else:
                self.journal = self._open(directory, opening)
            self._write_metadata(self.metadata)
            self._closing = opening.pop_all()

    @property
    def is_resumed(self) -> bool:
        return bool(self.before)

    def rows(self) -> list[dict[str, Any]]:
        return list(self.journal.rows())

    def finish(self, requests: Mapping[str, Any] | None = None) -> RunMetadata:
        """Sorts and summarizes the results and writes the metadata. If the disk fails, that error ends the run."""
        error = self.error
        try:
            self.journal.finish()
        except RunDirectoryError as broken:
            error = error or broken
        summary = summarize_rows(
            self.journal.rows(),
            rollouts=self.metadata.rollouts,
            rollouts_per_example=self.metadata.rollouts_per_example,
            pass_threshold=self.metadata.pass_threshold,
        )
        ran_ms = round((time.monotonic() - self._opened_at) * 1000)
        digests = self.directory.digests() if self.directory else None
        ended = self.metadata.ended(summary, error, self._tolerated_failures, ran_ms, digests, requests)
        if digests is not None and self.before.get("digests") == digests:
            ended = ended.unchanged(self.before)
        self._write_metadata(ended)  # if this fails, finish can be called again
        self.metadata, self.error = ended, error
        self.journal.forget()
        if unknown := self.journal.columns.unknown:
            logger.warning(
                "No rollout has the state columns (-C) %s: they are null in its results. Choose from: %s",
                ", ".join(map(repr, unknown)), ", ".join(self.journal.columns.choices),
            )  # fmt: skip
        logger.info(
            "Run %s is %s: %d of %d rollouts scored, %d failed, average reward %s",
            self.metadata.run_id, self.metadata.status, summary.scored, summary.rollouts, summary.failed,
            summary.avg_reward,
        )  # fmt: skip
        return self.metadata

    def close(self) -> None:
        """Closes the journal and unlocks the directory. A second call does nothing."""
        self._closing.close()

    def _open(self, directory: RunDirectory, opening: ExitStack) -> Journal:
        opening.enter_context(directory)
        directory.reserve_room()
        if directory.exists():
            check_same(directory, self._identity, list(self._hashes.values()), self.metadata.env_version)
            if directory.has_metadata():
                self.before = directory.read_metadata()
                began, ended = directory.last_session()
                was_killed = self.before.get("status") == "running"
                self.metadata = self.metadata.continued(self.before, round(1000 * (ended - began)) * was_killed)
        elif directory.has_metadata():
            check_recorded(directory, self._identity, self.metadata.num_examples)
        self.metadata = replace(self.metadata, run_id=settle_id(directory, self.metadata.run_id))
        is_outdated = is_of_other_code(self.before.get("version_info") or {}, self.metadata.version_info)
        journal = Journal(directory, self._hashes.__getitem__, self.metadata.state_columns, is_outdated=is_outdated)
        opening.callback(journal.close)
        self.outdated = journal.outdated
        if is_outdated:
            logger.warning(
                "The code of environment %r has changed since run %s began: %d rollouts are scored again",
                self.metadata.env_id, self.metadata.run_id, len(self.outdated),
            )  # fmt: skip
        directory.write_config(
            {
                "format": FORMAT,
                "run_id": self.metadata.run_id,
                **self._config,
                "selected_examples": len(self._hashes),
                "dataset_fingerprint": self.metadata.dataset_fingerprint,
                "env_version": self.metadata.env_version,
            }
        )
        return journal

    def _write_metadata(self, metadata: RunMetadata) -> None:
        if self.directory is not None:
            self.directory.write_metadata({"format": FORMAT, **metadata.to_json()})


def add_up(directory: RunDirectory, metadata: Mapping[str, Any]) -> Summary:
    """Sorts and summarizes the results of a run that no other process writes."""
    journal = Journal(directory, hash_of=str)  # nothing is appended
    journal.finish()
    return summarize_rows(
        journal.rows(),
        rollouts=metadata["rollouts"],
        rollouts_per_example=metadata["rollouts_per_example"],
        pass_threshold=metadata["pass_threshold"],
    )


def end_crashed(directory: RunDirectory) -> None:
    """Summarizes a locked run whose process died, and sets its status to ``crashed``.

    The time of the last write becomes the end of the run. Other runs stay unchanged.
    """
    metadata = directory.read_metadata()
    if metadata.get("status") != "running":
        return
    began, ended = directory.last_session()
    summary = add_up(directory, metadata)
    session = {
        "status": "crashed",
        "finished_at": datetime.fromtimestamp(ended, UTC).isoformat(timespec="milliseconds"),
        "time_ms": (metadata.get("time_ms") or 0) + round(1000 * (ended - began)),
    }
    directory.write_metadata(metadata | session | {"digests": directory.digests()} | summary.metadata())
    logger.warning(
        "The process of run %s died: %d of %d rollouts are scored, its status is crashed",
        directory.run_id, summary.scored, summary.rollouts,
    )  # fmt: skip
