"""Reads what ``verifiers`` writes: ``results.jsonl`` and ``metadata.json`` of a folder.

The rows are told about in :mod:`~nightjar.adapters.results.verifiers_rows`. The aggregates are kept under
``original``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nightjar.adapters.results.discovery import FoundResults
from nightjar.adapters.results.redaction import public_url, without_secrets
from nightjar.adapters.results.results import ForeignRun, ResultsWriter, digest
from nightjar.adapters.results.values import (
    integer,
    iso_time,
    mapping,
    milliseconds,
    number,
    read_object,
    text,
    unix_time,
)
from nightjar.adapters.results.verifiers_rows import RowReader

_log = logging.getLogger(__name__)

_AGGREGATES = (
    "num_examples", "avg_reward", "avg_metrics", "avg_error", "pass_at_k", "pass_all_k", "pass_threshold", "usage",
)  # fmt: skip
_THRESHOLD = 0.5
_REWARD_PRECISION = 1e-6


def read(found: FoundResults, folder: Path) -> ForeignRun:
    """Writes the results of a run into a folder, and returns what its metadata say.

    The run is identified by what ``verifiers`` itself compares on a resume (environment, model, rollouts per example)
    and by the moment its first rollout began, which no other run has and which stays when it is resumed; rows
    without times by all they hold. The name of the folder has no part in it, because folders are renamed.

    Raises:
        WarehouseError: a file is damaged or cannot be read.
    """
    metadata = read_object(found.path / "metadata.json")
    rows = RowReader(found.path / "results.jsonl", metadata)
    with ResultsWriter(folder) as writer:
        rows.write_rows(writer)
        written = writer.finish()
    if rows.overwritten:
        _log.warning(
            "%s: a reward function named 'reward' has overwritten the reward of %d rows; they keep its score.",
            found.path, rows.overwritten,
        )  # fmt: skip
    threshold = number(metadata.get("pass_threshold"))
    env_id, model = text(metadata.get("env_id")), text(metadata.get("model"))
    identity = [env_id, model, metadata.get("rollouts_per_example"), rows.start or written.content]
    return ForeignRun(
        run_id=f"verifiers-{digest(*identity)}",
        settings=_settings(metadata, rows),
        num_examples=integer(metadata.get("num_examples")) or 0,
        rollouts_per_example=integer(metadata.get("rollouts_per_example")) or 0,
        pass_threshold=_THRESHOLD if threshold is None else threshold,
        state_columns=list(rows.state_columns),
        original={"program": "verifiers", **{name: metadata[name] for name in _AGGREGATES if name in metadata}},
        original_reward=number(metadata.get("avg_reward")),
        reward_precision=_REWARD_PRECISION,
        written=written,
    )


def _settings(metadata: Mapping[str, Any], rows: RowReader) -> dict[str, Any]:
    versions = mapping(metadata.get("version_info"))
    said = unix_time(f"{metadata.get('date')}T{metadata.get('time')}") or unix_time(metadata.get("date"))
    started_at = iso_time(said if rows.start is None else rows.start)
    date, _, clock = (started_at or "").partition("T")
    time_ms = number(metadata.get("time_ms"))
    return {
        "env_id": text(metadata.get("env_id")),
        "env_args": without_secrets(mapping(metadata.get("env_args"))),
        "extra_env_kwargs": {},
        "env_version": text(versions.get("env_version")),
        "model": text(metadata.get("model")),
        "base_url": public_url(text(metadata.get("base_url")) or "") or None,
        "sampling_args": without_secrets(mapping(metadata.get("sampling_args"))),
        "date": date or None,
        "time": clock.partition(".")[0] or None,
        "time_ms": milliseconds(number(metadata.get("time"))) if time_ms is None else time_ms,
        "started_at": started_at,
        "finished_at": iso_time(rows.end),
        "version_info": without_secrets(versions),
    }
