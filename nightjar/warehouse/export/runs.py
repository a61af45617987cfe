"""The runs of an export: which they are, and a connection that sees some of them at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import quoted
from nightjar.warehouse.reading.reader import ask_once
from nightjar.warehouse.reading.relations import define_records, selection, views_script
from nightjar.warehouse.storage.segments import Catalog, Segment, Source
from nightjar.warehouse.storage.store import Store

SLICE_ROLLOUTS = 50_000
"""How many rollouts are written at a time, unless one run has more: their texts have room in memory."""

_RUNS = """
SELECT run_id, env_id, model, coalesce(scored, 0) + coalesce(failed, 0)
FROM runs
WHERE ($suite IS NULL OR suite = $suite) AND ($run_ids IS NULL OR list_contains($run_ids, run_id)) AND (
{condition}
)
ORDER BY run_id
"""


@dataclass(frozen=True)
class Selection:
    """Which runs are exported: those that meet all that is given; all runs where nothing is.

    Attributes:
        where: a condition in SQL on ``runs``, for instance ``env_id = 'gsm8k'``.
        suite: the suite they were started in.
        run_ids: these and no others.
    """

    where: str | None = None
    suite: str | None = None
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportedRun:
    """A run that is exported."""

    run_id: str
    env_id: str | None
    model: str | None
    rollouts: int


def choose_runs(store: Store, chosen: Selection) -> list[ExportedRun]:
    """Returns the runs of a selection, in the order of their ids.

    The condition is evaluated where it can read the warehouse and do nothing else.

    Raises:
        WarehouseError: the condition cannot be evaluated, a run is not there, or there is none.
    """
    sql = _RUNS.format(condition=chosen.where or "true")
    values = {"suite": chosen.suite, "run_ids": list(chosen.run_ids) or None}
    try:
        found = ask_once(store, sql, values)
    except WarehouseError as error:
        if chosen.where is None:
            raise
        raise WarehouseError(f"Cannot use the condition {chosen.where!r}: {error}") from error
    _refuse_unknown(store, chosen.run_ids)
    if not found.rows:
        raise WarehouseError(f"No run in {store} meets what was asked for. See: nightjar sql 'FROM runs'")
    return [ExportedRun(*row) for row in found.rows]


class ExportConnection:
    """A connection in which the tables and views of the warehouse hold some of the runs.

    Args:
        store: the warehouse.
        catalog: where the runs are.
        connection: in which schema ``segments`` is made.

    Raises:
        WarehouseError: (also its methods) a run has been removed since it was chosen.
    """

    def __init__(self, store: Store, catalog: Catalog, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self._store = store
        self._catalog = catalog
        store.prepare(connection)
        connection.execute("CREATE SCHEMA segments")
        define_records(connection, store.records())
        self.narrow([])
        connection.execute(views_script())

    def narrow(self, run_ids: Sequence[str]) -> None:
        """Makes the connection see these runs and no others, with the examples that they use."""
        catalog = self._catalog
        holders = {holder.segment_id: holder for holder in map(self._holder, run_ids)}
        sources = [Source((name,), catalog.dead_runs(segment)) for name, segment in sorted(holders.items())]
        condition = f"run_id IN ({', '.join(map(quoted, run_ids))})" if run_ids else "false"
        for kind in ("runs", "rollouts", "attempts"):
            self._define(kind, sources, condition)
        used = "content_id IN (SELECT content_id FROM segments.rollouts)"
        self._define("examples", _example_sources(catalog, sources), used)

    def slices(self, runs: Sequence[ExportedRun]) -> Iterator[tuple[str, ...]]:
        """Yields the runs in parts of a size, those together that are read from one segment."""
        by_segment: dict[str, list[ExportedRun]] = defaultdict(list)
        for run in runs:
            by_segment[self._holder(run.run_id).segment_id].append(run)
        part: list[str] = []
        rollouts = 0
        for run in (run for _, held in sorted(by_segment.items()) for run in held):
            if part and rollouts + run.rollouts > SLICE_ROLLOUTS:
                yield tuple(part)
                part, rollouts = [], 0
            part.append(run.run_id)
            rollouts += run.rollouts
        if part:
            yield tuple(part)

    def example_parts(self, runs: Sequence[ExportedRun], key: str) -> Iterator[str]:
        """Makes the connection see all of the runs, and yields conditions that take their examples apart.

        Args:
            runs: all that are exported.
            key: the column whose values stay together.
        """
        self.narrow([run.run_id for run in runs])
        [(count,)] = self.connection.execute("SELECT count(*) FROM segments.examples").fetchall()
        parts = 1 + count // SLICE_ROLLOUTS
        for part in range(parts):
            yield f"hash({key}) % {parts} = {part}"

    def _holder(self, run_id: str) -> Segment:
        if run_id not in self._catalog.holders:
            raise WarehouseError(
                f"Cannot export run {run_id!r}: it was removed from {self._store} meanwhile. Export again."
            )
        return self._catalog.holders[run_id]

    def _define(self, kind: str, sources: Sequence[Source], condition: str) -> None:
        rows = selection(kind, sources, self._store.file)
        self.connection.execute(
            f"CREATE OR REPLACE VIEW segments.{kind} AS SELECT * FROM ({rows}) WHERE {condition}"  # noqa: S608 - quoted
        )


def _example_sources(catalog: Catalog, sources: Sequence[Source]) -> list[Source]:
    """Where the examples of some segments are: in themselves, and in all packs where one of them is a pack."""
    own = {name for source in sources for name in source.segment_ids}
    if any(catalog.segments[name].is_pack for name in own):
        own |= {name for name, one in catalog.segments.items() if one.is_pack and name not in catalog.retired}
    return [Source(tuple(sorted(own)))] if own else []


def _refuse_unknown(store: Store, run_ids: Sequence[str]) -> None:
    known = store.catalog().holders
    unknown = [run_id for run_id in run_ids if run_id not in known]
    if unknown:
        raise WarehouseError(f"No run {unknown[0]!r} in {store}. See: nightjar sql 'FROM runs'")
