"""Converts results to run directories and publishes them."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import ValidationError

from nightjar.core.files import scratch_folder
from nightjar.engine.runs import RunDirectory, RunMetadata, final_status, summarize
from nightjar.engine.runs.directory import FORMAT
from nightjar.engine.runs.identity import fingerprint
from nightjar.engine.runs.jsonl import digest_of
from nightjar.errors import (
    MissingWarehouseError,
    NightjarError,
    RunConflictError,
    RunDirectoryError,
    WarehouseError,
)
from nightjar.importers import inspect_reader, lm_eval, nemo, verifiers
from nightjar.importers.discovery import FoundResults, Kind, find_results
from nightjar.importers.rollouts import ResultsWriter
from nightjar.warehouse import PublishReport, Warehouse

Novelty = Literal["new", "updated", "already there", "older than what is there"]

_READERS: Mapping[Kind, Callable[[FoundResults, ResultsWriter], RunMetadata]] = {
    "verifiers": verifiers.read,
    "nemo": nemo.read,
    "inspect": inspect_reader.read,
    "lm-eval": lm_eval.read,
}
_TIDY_EVERY = 16
_SOURCES = """
SELECT from_json(metadata -> 'sources', '["VARCHAR"]') AS sources, run_id, env_id, model, scored + failed AS rollouts
FROM runs WHERE (metadata -> 'sources') IS NOT NULL AND (metadata -> 'original' -> 'unreadable') IS NULL
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Imported:
    """The outcome of importing one run, with an ``error``, or the run's ``novelty`` in the warehouse.

    ``kind`` is the program that wrote the results, or ``unknown``. Unknown runs, environments and models are None.
    ``unreadable`` names the damaged rows, which are left out, with file and line (in a zip: the entry) and the reason.
    """

    path: Path
    kind: str
    run_id: str | None = None
    env_id: str | None = None
    model: str | None = None
    rollouts: int = 0
    novelty: Novelty | None = None
    error: str | None = None
    unreadable: Sequence[str] = ()


def import_all(
    warehouse: Warehouse, paths: Sequence[Path], progress: Callable[[int, int], None] | None = None
) -> Iterator[Imported]:
    """Publishes all results in folders one by one and yields the outcomes; a failure does not stop the others.

    A log of Inspect whose content is already published is not read again, so a killed import is resumed quickly. A
    damaged log is read again, and a copy of a run with fewer rollouts never replaces the run.
    ``progress`` receives the number of finished runs and of all runs.
    """
    found: list[FoundResults] = []
    unreadable: dict[Path, str] = {}
    for path in paths:
        try:
            found += find_results(path, unreadable)
        except WarehouseError as error:
            unreadable.setdefault(path, str(error))
    yield from (Imported(path, "unknown", error=error) for path, error in unreadable.items())
    found.sort(key=_changed_at)
    published = _published(warehouse) if any(one.kind == "inspect" for one in found) else {}
    try:
        for done, results in enumerate(found, start=1):
            yield _import(warehouse, results, published)
            if progress:
                progress(done, len(found))
            if done % _TIDY_EVERY == 0:
                warehouse.tidy()
    finally:
        warehouse.tidy()


def _changed_at(found: FoundResults) -> float:
    """Returns when a file changed, so that the newest of several copies of a run is imported last; else 0."""
    try:
        return found.path.stat().st_mtime if found.kind == "inspect" else 0.0
    except OSError:
        return 0.0


def _published(warehouse: Warehouse) -> dict[str, Imported]:
    """Returns the runs of the warehouse that were imported from undamaged files, by the digest of each file."""
    try:
        rows = warehouse.query(_SOURCES).records()
    except MissingWarehouseError:
        return {}
    runs = [(row.pop("sources"), Imported(Path(), "inspect", novelty="already there", **row)) for row in rows]
    return {source: run for sources, run in runs for source in sources}


def _source(found: FoundResults) -> str | None:
    """Returns the digest of the file that holds a run; None for results in several files."""
    return f"inspect-{inspect_reader.VERSION}-{digest_of(found.path)}" if found.kind == "inspect" else None


def _import(warehouse: Warehouse, found: FoundResults, published: dict[str, Imported]) -> Imported:
    """Imports one run, unless it was imported from the same file, and adds it to ``published``."""

    def sources(run_id: str) -> list[str]:
        """Names also files of earlier imports, so that an older copy of an edited log is not imported again."""
        known = [name for name, run in published.items() if run.run_id == run_id]
        return [*known, source] if source else []

    with scratch_folder() as scratch:
        try:
            source = _source(found)
            if source in published:
                return replace(published[source], path=found.path)
            run_dir = _converted(found, scratch, sources)
            report = warehouse.publish(run_dir, tidies=False)
            described = RunDirectory(run_dir).read_metadata()
        except NightjarError as error:
            if isinstance(error, RunConflictError) and found.kind != "nightjar":
                error.remedy = "Import it into another warehouse: --warehouse"
            return Imported(found.path, found.kind, error=str(error))
    env_id, model = described.get("env_id"), described.get("model")
    done = Imported(
        found.path, found.kind, report.run_id, env_id, model, report.rollouts, unreadable=_unreadable(described)
    )
    if not done.unreadable:
        published |= dict.fromkeys(sources(report.run_id), replace(done, novelty="already there"))
    return replace(done, novelty=_novelty(report))


def _unreadable(metadata: Mapping[str, Any]) -> Sequence[str]:
    return (metadata.get("original") or {}).get("unreadable") or ()


def _novelty(report: PublishReport) -> Novelty:
    if report.is_new:
        return "updated" if report.is_update else "new"
    return "older than what is there" if report.is_older else "already there"


def convert(found: FoundResults, scratch: Path) -> Path:
    """Returns a run directory with the results; the folder itself if Nightjar wrote the results.

    The same results always give the same content and ``run_id``; the id stays if the other program resumes its run.
    The directory has no journal of attempts. An existing run directory in ``scratch`` is replaced. Warns about damaged
    rows that are left out.
    """
    run_dir = _converted(found, scratch)
    if found.kind != "nightjar":
        for row in _unreadable(RunDirectory(run_dir).read_metadata()):
            _log.warning("Left out: %s", row)
    return run_dir


def _converted(
    found: FoundResults, scratch: Path, sources: Callable[[str], Sequence[str]] = lambda _run_id: ()
) -> Path:
    if found.kind == "nightjar":
        return found.path
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=scratch, prefix=".importing-") as unfinished:
            folder = Path(unfinished, "run")
            folder.mkdir()
            with closing(ResultsWriter(folder)) as results:
                metadata = _added_up(_READERS[found.kind](found, results), results)
            files = {"sources": names} if (names := sources(metadata.run_id)) else {}
            RunDirectory(folder).write_metadata({"format": FORMAT, **files, **metadata.to_json()})
            target = scratch / metadata.run_id
            shutil.rmtree(target, ignore_errors=True)
            return folder.rename(target)
    except (OSError, RunDirectoryError, ValidationError, OverflowError) as error:
        raise WarehouseError(f"Cannot import {str(found.path)!r}: {error}") from error


def _added_up(original: RunMetadata, results: ResultsWriter) -> RunMetadata:
    """Returns metadata with the aggregates of the results. If a recorded count is larger, it is kept."""
    hashes, most = results.hashes, results.most_rollouts
    num_examples = max(original.num_examples, len(hashes))
    rollouts_per_example = max(original.rollouts_per_example, most)
    rollouts = max(num_examples * (original.rollouts_per_example or most), len(results))
    summary = summarize(
        results.path,
        rollouts=rollouts,
        rollouts_per_example=rollouts_per_example,
        pass_threshold=original.pass_threshold,
    )
    return replace(
        original,
        status=final_status(summary) if original.status == "running" else original.status,
        num_examples=num_examples,
        rollouts_per_example=rollouts_per_example,
        rollouts=rollouts,
        dataset_fingerprint=fingerprint(hashes[one] for one in sorted(hashes)) if len(hashes) == num_examples else None,
        state_columns=list(results.state_columns),
        summary=summary,
    )
