"""Publishes results from elsewhere: run directories of Nightjar, of verifiers, and bundles of NeMo Evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import orjson

from nightjar.errors import NightjarError, WarehouseError
from nightjar.warehouse.foreign import FoundResults, convert, find_results
from nightjar.warehouse.storage.segments import Catalog
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.bulk import Progress, silent
from nightjar.warehouse.writing.packing import FAN_IN
from nightjar.warehouse.writing.publishing import PublishReport, publish_run
from nightjar.warehouse.writing.tidying import tidy

Novelty = Literal["new", "updated", "already there", "older than what is there"]


@dataclass(frozen=True)
class Imported:
    """What became of the results of one run.

    Attributes:
        path: where they were.
        kind: which program wrote them; ``unknown`` where there are none.
        run_id, env_id, model: the run; None where they could not be read.
        rollouts: how many records it has.
        novelty: what it is to the warehouse; None for a failure.
        error: why it could not be imported; None for a success.
    """

    path: Path
    kind: str
    run_id: str | None = None
    env_id: str | None = None
    model: str | None = None
    rollouts: int = 0
    novelty: Novelty | None = None
    error: str | None = None


def import_all(store: Store, paths: Sequence[Path], progress: Progress = silent) -> Iterator[Imported]:
    """Yields what became of all results in some folders, one after the other; goes on after bad ones.

    Raises:
        WarehouseError: the warehouse cannot be written.
    """
    found: list[FoundResults] = []
    for path in paths:
        try:
            found += find_results(path)
        except WarehouseError as error:
            yield Imported(path, "unknown", error=str(error))
    try:
        for done, results in enumerate(found, start=1):
            yield _import(store, results)
            progress(done, len(found))
            if done % FAN_IN == 0:
                tidy(store)
    finally:
        tidy(store)


def _import(store: Store, found: FoundResults) -> Imported:
    with TemporaryDirectory(prefix="nightjar-") as temporary:
        try:
            run_dir = convert(found, Path(temporary))
            before = store.catalog()
            report = publish_run(store, run_dir)
            described = orjson.loads((run_dir / "metadata.json").read_bytes())
        except NightjarError as error:
            return Imported(found.path, found.kind, error=str(error))
    return Imported(
        path=found.path,
        kind=found.kind,
        run_id=report.run_id,
        env_id=described.get("env_id"),
        model=described.get("model"),
        rollouts=report.rollouts,
        novelty=_novelty(report, before),
    )


def _novelty(report: PublishReport, before: Catalog) -> Novelty:
    if report.is_new:
        return "updated" if report.run_id in before.holders else "new"
    return "older than what is there" if report.is_older else "already there"
