"""Joins the parts of a run: a run directory with all that theirs hold, as one process would have written it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nightjar.errors import RunDirectoryError
from nightjar.parts import Part
from nightjar.runs.adding_up import add_up
from nightjar.runs.directory import RunDirectory
from nightjar.runs.metadata import final_status


def join_parts(parts: Sequence[RunDirectory], joined: RunDirectory) -> None:
    """Writes the run directory of a run that was done in parts.

    It is what the run would be that was not cut, but for times: of the parts the first start, the last end, and the
    longest time. Where something is missing, its status is that of the first part that did not come to its end.

    Args:
        parts: all of them, in their order, and of the same settings; nothing in them is changed.
        joined: an empty folder.

    Raises:
        RunDirectoryError: a file is damaged, or cannot be written.
    """
    config, told = parts[0].read_config(), [part.read_metadata() for part in parts]
    whole = config.pop("whole")
    for name in ("attempts.jsonl", "results.jsonl"):
        _concatenate(parts, joined, name)
    metadata = _metadata(told, whole)
    summary = add_up(joined, metadata)
    status = final_status(summary, None, config.get("tolerated_failures") or 0.0)
    stopped = [each["status"] for each in told if each["status"] not in {"completed", "incomplete"}]
    ended = {"status": stopped[0] if stopped and status != "completed" else status, "digests": joined.digests()}
    selected = {"selected_examples": whole["num_examples"], "dataset_fingerprint": whole["dataset_fingerprint"]}
    joined.write_config({**config, "part": None, **selected})
    joined.write_metadata({**metadata, **ended, **summary.metadata()})


def _metadata(told: Sequence[Mapping[str, Any]], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata of a run from those of its parts, without what it came to."""
    first = min(told, key=lambda each: each["started_at"])
    part = Part.of(first["run_id"])
    assert part is not None, "it is called as a part"
    requests: Counter[str] = Counter()
    for each in told:
        requests.update({name: count for name, count in (each["requests"] or {}).items() if name != "pace"})
    return {
        **{name: value for name, value in first.items() if name != "published_at"},
        "run_id": part.run_id,
        "flow_run_id": None,
        "num_examples": whole["num_examples"],
        "rollouts": whole["num_examples"] * first["rollouts_per_example"],
        "dataset_fingerprint": whole["dataset_fingerprint"],
        "finished_at": max((each["finished_at"] for each in told if each["finished_at"]), default=None),
        "time_ms": max(each["time_ms"] or 0 for each in told),
        "requests": {**requests, "pace": [pace for each in told for pace in (each["requests"] or {}).get("pace", ())]},
    }


def _concatenate(parts: Sequence[RunDirectory], joined: RunDirectory, name: str) -> None:
    try:
        with (joined.path / name).open("wb") as file:
            for part in parts:
                with (part.path / name).open("rb") as content:
                    shutil.copyfileobj(content, file)
    except OSError as error:
        raise RunDirectoryError(f"The parts cannot be joined: {error.strerror}: {error.filename}") from error
