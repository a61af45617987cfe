"""Converts results to run directories and publishes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from pydantic import ValidationError

from nightjar.engine.runs import RunDirectory, RunMetadata, final_status, summarize
from nightjar.engine.runs.directory import FORMAT
from nightjar.engine.runs.identity import fingerprint
from nightjar.errors import NightjarError, RunConflictError, RunDirectoryError, WarehouseError
from nightjar.importers import nemo, verifiers
from nightjar.importers.discovery import FoundResults, Kind, find_results
from nightjar.importers.rollouts import ResultsWriter
from nightjar.warehouse import PublishReport, Warehouse

Novelty = Literal["new", "updated", "already there", "older than what is there"]

_READERS: Mapping[Kind, Callable[[FoundResults, ResultsWriter], RunMetadata]] = {
    "verifiers": verifiers.read,
    "nemo": nemo.read,
}
_TIDY_EVERY = 16


@dataclass(frozen=True)
class Imported:
    """The outcome of importing one run, with an ``error``, or the run's ``novelty`` in the warehouse.

    ``kind`` is the program that wrote the results, or ``unknown``. Unknown runs, environments and models are None.
    """

    path: Path
    kind: str
    run_id: str | None = None
    env_id: str | None = None
    model: str | None = None
    rollouts: int = 0
    novelty: Novelty | None = None
    error: str | None = None


def import_all(
    warehouse: Warehouse, paths: Sequence[Path], progress: Callable[[int, int], None] | None = None
) -> Iterator[Imported]:
    """Publishes all results in folders one by one and yields the outcomes; a failure does not stop the others.

    ``progress`` receives the number of finished runs and of all runs.
    """
    found: list[FoundResults] = []
    for path in paths:
        try:
            found += find_results(path)
        except WarehouseError as error:
            yield Imported(path, "unknown", error=str(error))
    try:
        for done, results in enumerate(found, start=1):
            yield _import(warehouse, results)
            if progress:
                progress(done, len(found))
            if done % _TIDY_EVERY == 0:
                warehouse.tidy()
    finally:
        warehouse.tidy()


def _import(warehouse: Warehouse, found: FoundResults) -> Imported:
    with TemporaryDirectory(prefix="nightjar-") as temporary:
        try:
            run_dir = convert(found, Path(temporary))
            report = warehouse.publish(run_dir, tidies=False)
            described = RunDirectory(run_dir).read_metadata()
        except NightjarError as error:
            if isinstance(error, RunConflictError) and found.kind != "nightjar":
                error.remedy = "Import it into another warehouse: --warehouse"
            return Imported(found.path, found.kind, error=str(error))
    env_id, model = described.get("env_id"), described.get("model")
    return Imported(found.path, found.kind, report.run_id, env_id, model, report.rollouts, _novelty(report))


def _novelty(report: PublishReport) -> Novelty:
    if report.is_new:
        return "updated" if report.is_update else "new"
    return "older than what is there" if report.is_older else "already there"


def convert(found: FoundResults, scratch: Path) -> Path:
    """Returns a run directory with the results; the folder itself if Nightjar wrote the results.

    The same results always give the same content and ``run_id``; the id stays if the other program resumes its run.
    The directory has no journal of attempts. An existing run directory in ``scratch`` is replaced.
    """
    if found.kind == "nightjar":
        return found.path
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=scratch, prefix=".importing-") as unfinished:
            folder = Path(unfinished, "run")
            folder.mkdir()
            with closing(ResultsWriter(folder)) as results:
                metadata = _added_up(_READERS[found.kind](found, results), results)
            RunDirectory(folder).write_metadata({"format": FORMAT, **metadata.to_json()})
            target = scratch / metadata.run_id
            shutil.rmtree(target, ignore_errors=True)
            return folder.rename(target)
    except (OSError, RunDirectoryError, ValidationError, OverflowError) as error:
        raise WarehouseError(f"Cannot import {str(found.path)!r}: {error}") from error


def _added_up(original: RunMetadata, results: ResultsWriter) -> RunMetadata:
    """Returns metadata with the aggregates of the results; a count is the larger of those in metadata and rows."""
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
        status=final_status(summary),
        num_examples=num_examples,
        rollouts_per_example=rollouts_per_example,
        rollouts=rollouts,
        dataset_fingerprint=fingerprint(hashes[one] for one in sorted(hashes)) if len(hashes) == num_examples else None,
        state_columns=list(results.state_columns),
        summary=summary,
    )
