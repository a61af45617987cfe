"""Publishes results from elsewhere: run directories of Nightjar, of verifiers, and bundles of NeMo Evaluator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from nightjar.adapters.results.conversion import convert
from nightjar.adapters.results.discovery import FoundResults, find_results
from nightjar.errors import NightjarError, WarehouseError
from nightjar.runs import RunDirectory
from nightjar.warehouse import PublishReport, Warehouse

Novelty = Literal["new", "updated", "already there", "older than what is there"]

_TIDY_EVERY = 16


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


def import_all(
    warehouse: Warehouse, paths: Sequence[Path], progress: Callable[[int, int], None] | None = None
) -> Iterator[Imported]:
    """Yields what became of all results in some folders, one after the other; goes on after bad ones.

    Args:
        warehouse: where they are published.
        paths: folders of any depth, or files of one run.
        progress: is told how many are done, and of how many.

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
            return Imported(found.path, found.kind, error=str(error))
    return Imported(
        path=found.path,
        kind=found.kind,
        run_id=report.run_id,
        env_id=described.get("env_id"),
        model=described.get("model"),
        rollouts=report.rollouts,
        novelty=_novelty(report),
    )


def _novelty(report: PublishReport) -> Novelty:
    if report.is_new:
        return "updated" if report.is_update else "new"
    return "older than what is there" if report.is_older else "already there"
