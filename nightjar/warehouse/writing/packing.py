"""Merges small segments into packs, and removes segments that are no longer needed.

Sixteen segments of similar size become one pack, and sixteen such packs become one larger pack, up to about 100,000
rollouts. So published data is written three times in all, and a million rollouts are in about forty segments.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import explained, parquet, scratch_connection
from nightjar.warehouse.location import file_errors
from nightjar.warehouse.reading.reader import damage_named, listed, refuse_damaged
from nightjar.warehouse.reading.relations import selection
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.segments import ORDER, PACK_PREFIX, RUN_KINDS, Catalog, Segment, Source
from nightjar.warehouse.storage.store import Store

FAN_IN = 16

MOST_AT_ONCE = 256
"""Maximum number of segments in a merge: DuckDB needs 1 GB for some thousands, however small they are."""

LARGE_ROLLOUTS = 100_000
LARGE_BYTES = 100_000_000
"""A segment this large is not merged further, because a merge has to fit into memory."""

RETIRED_FOR = timedelta(hours=1)
"""How long a retired segment stays for queries that are reading it."""

LOCK_TIMEOUT_SECONDS = 60.0
"""How long to wait for another process that packs, prunes or repairs."""

_REST_SECONDS = 5.0

_verified: set[tuple[str, str, int]] = set()
"""Files that were found undamaged: path, digest and modification time in nanoseconds."""

_log = logging.getLogger(__name__)


@contextmanager
def alone_in(store: Store) -> Iterator[None]:
    """Waits for the right to pack and remove segments; raises WarehouseError if another process keeps it."""
    with store.packing_alone(timeout_seconds=LOCK_TIMEOUT_SECONDS) as alone:
        if not alone:
            raise WarehouseError(
                f"The warehouse {store} is being packed, pruned or repaired by another process. Try again later."
            )
        yield


@dataclass
class _SharedTidying:
    began_at: float = field(default_factory=time.monotonic)
    tidied_at: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, Store] = field(default_factory=dict)

    def puts_off(self, store: Store) -> bool:
        name, now = str(store), time.monotonic()
        if now - self.tidied_at.get(name, self.began_at) < _REST_SECONDS:
            self.waiting[name] = store
            return True
        self.tidied_at[name] = now
        self.waiting.pop(name, None)
        return False


_shared_tidying: ContextVar[_SharedTidying | None] = ContextVar("shared_tidying", default=None)


@contextmanager
def shared_tidying() -> Iterator[None]:
    """Makes runs that end together share one ``tidy``, which takes longer than publishing a small run.

    In this block, ``tidy`` works on a warehouse every five seconds at most, and once more at the end if needed. So runs
    that all end within five seconds are tidied once.
    """
    shared = _SharedTidying()
    token = _shared_tidying.set(shared)
    try:
        yield
    finally:
        _shared_tidying.reset(token)
        for store in shared.waiting.values():
            tidy(store)


def tidy(store: Store) -> None:
    """Packs as needed and replaces the snapshot. Only warns on errors, because the run is already published."""
    if (shared := _shared_tidying.get()) is not None and shared.puts_off(store):
        return
    try:
        if not store.exists():
            return
        pack_as_needed(store)
    except (OSError, WarehouseError) as error:
        _log.warning("The run is published, but small segments were not packed: %s", error)
    write_snapshot(store)


def pack_as_needed(store: Store) -> int:
    """Merges crowded segments and removes retired segments. Returns the number of packs; 0 if another process packs."""
    if store.is_remote:
        return 0
    packed = 0
    with store.packing_alone() as alone:
        while alone and (crowd := crowded(store.catalog())):
            merge(store, crowd)
            packed += 1
        if alone:
            remove_retired(store)
    return packed


def pack_everything(store: Store, retired_for: timedelta = timedelta(0)) -> int:
    """Merges all small segments, removes retired segments, and replaces the snapshot.

    Returns the number of packs written.

    In an object store retired segments stay for at least an hour, whatever ``retired_for`` says.
    """
    packed = 0
    with alone_in(store):
        while batches := list(_batches(store.catalog())):
            for batch in batches:
                merge(store, batch)
            packed += len(batches)
        remove_retired(store, older_than=retired_for)
    write_snapshot(store)
    return packed


def crowded(catalog: Catalog) -> list[Segment]:
    """Returns segments to merge: too many segments of one size, or else a large segment that is mostly outdated."""
    classes: dict[int, list[Segment]] = defaultdict(list)
    for segment in _by_age(one for one in catalog.needed.values() if not _is_large([one])):
        classes[int(math.log(max(1, segment.rows["rollouts"]), FAN_IN))].append(segment)
    for _, members in sorted(classes.items()):
        if len(members) >= FAN_IN:
            return _up_to_large(members)
    mostly = (name for name, runs in outdated(catalog).items() if 2 * runs > len(catalog.segments[name].versions))
    return [catalog.segments[name] for name in mostly][:1]


def outdated(catalog: Catalog) -> dict[str, int]:
    large = (one for one in catalog.needed.values() if _is_large([one]))
    return {segment.segment_id: len(dead) for segment in large if (dead := catalog.dead_runs(segment))}


def merge(store: Store, segments: Sequence[Segment], without: Sequence[str] = ()) -> None:
    """Replaces segments by a pack of their current rows. Only one process at a time may pack.

    Omits the runs in ``without``, and the examples that only these runs use. Changes nothing if a segment is damaged or
    if another machine removed one of the runs.
    """
    refuse_damaged(store, segments)
    catalog, started_at = store.catalog(), datetime.now(UTC)
    sources = [Source((s.segment_id,), (*catalog.dead_runs(s), *without), s.schema) for s in segments]
    versions = {
        run_id: version
        for segment, source in zip(segments, sources, strict=True)
        for run_id, version in segment.versions.items()
        if run_id not in source.without
    }
    with (
        file_errors(f"Cannot pack the warehouse {store}"),
        damage_named(store, deep=False),
        explained(f"Cannot pack the warehouse {store}"),
        scratch_connection() as connection,
    ):
        store.prepare(connection)
        pack, _ = store.write_segment(
            connection,
            new_pack_id(),
            versions=versions,
            relations=_relations(store, catalog, sources, without),
            replaces=[segment.segment_id for segment in segments],
        )
    if store.is_remote and datetime.now(UTC) - started_at < RETIRED_FOR / 2:
        _withdraw_if_pruned(store, pack)


def _withdraw_if_pruned(store: Store, pack: Segment) -> None:
    """Removes a pack with a run that no other segment holds, because another machine pruned it meanwhile.

    A pruner checks for such packs too, so that at least one of the two processes notices the other.
    """
    others = Catalog.of(one for name, one in store.catalog().segments.items() if name != pack.segment_id)
    gone = pack.versions.keys() - others.holders.keys()
    if gone:
        store.remove(pack.segment_id)
        raise WarehouseError(
            f"Cannot pack the warehouse {store}: {listed(gone)} {'was' if len(gone) == 1 else 'were'} removed from it "
            "meanwhile. Try again."
        )


def new_pack_id() -> str:
    return f"{PACK_PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def remove_retired(store: Store, older_than: timedelta = RETIRED_FOR) -> None:
    """Removes long-retired segments and unfinished files of dead processes. Only one process at a time may do so.

    The oldest segments are removed first: without its pack, a replaced segment would count again. In an object store,
    retired segments stay for at least ``RETIRED_FOR``.
    """
    catalog, now = store.catalog(), datetime.now(UTC)
    stays = max(older_than, RETIRED_FOR) if store.is_remote else older_than
    newest_first = reversed(_by_age(catalog.segments.values()))
    packed_at = {name: pack.created_at for pack in newest_first for name in pack.replaces}  # by the oldest pack
    for segment in _by_age(catalog.retired.values()):
        newer = (catalog.holder_of(run_id).created_at for run_id in segment.versions)
        retired_at = packed_at.get(segment.segment_id) or min(newer)
        if now - retired_at >= stays:
            store.remove(segment.segment_id)
    store.remove_leftovers()


def _relations(store: Store, catalog: Catalog, sources: Sequence[Source], without: Sequence[str]) -> dict[str, str]:
    """Returns a pack's statements by kind. The pack omits examples that are in the packs it relies on."""
    merged = {name: catalog.segments[name] for source in sources for name in source.segment_ids}
    kept = _packs_to_rely_on(store, catalog, merged)
    rows = {kind: f"{selection(kind, sources, store.file)} ORDER BY {ORDER[kind]}" for kind in RUN_KINDS}
    contents = selection("examples", Source.all_of(merged.values()), store.file)
    known = selection("examples", Source.all_of(kept), store.file)
    used = ""
    if without:
        kept_sources = [replace(source, without=(*source.without, *without)) for source in catalog.sources()]
        used = f" AND content_id IN (SELECT content_id FROM ({selection('rollouts', kept_sources, store.file)}))"  # noqa: S608 - own paths, quoted
    rows["examples"] = (
        f"SELECT DISTINCT ON (content_id) * FROM ({contents}) "  # noqa: S608 - own paths, quoted
        f"WHERE content_id NOT IN (SELECT content_id FROM ({known})){used} ORDER BY {ORDER['examples']}"
    )
    return rows


def _is_large(segments: Sequence[Segment]) -> bool:
    rollouts = sum(segment.rows["rollouts"] for segment in segments)
    return rollouts >= LARGE_ROLLOUTS or sum(segment.size for segment in segments) >= LARGE_BYTES


def _by_age(segments: Iterable[Segment]) -> list[Segment]:
    return sorted(segments, key=lambda segment: (segment.created_at, segment.segment_id))


def _up_to_large(segments: Sequence[Segment]) -> list[Segment]:
    chosen: list[Segment] = []
    for segment in segments:
        chosen.append(segment)
        if len(chosen) == MOST_AT_ONCE or _is_large(chosen):
            break
    return chosen


def _batches(catalog: Catalog) -> Iterator[list[Segment]]:
    """Yields all small segments, and all segments with outdated runs, in batches of the size of a large segment."""
    needed = catalog.needed.values()
    waiting = _by_age(segment for segment in needed if not _is_large([segment]) or catalog.dead_runs(segment))
    while waiting:
        batch = _up_to_large(waiting)
        waiting = waiting[len(batch) :]
        if len(batch) > 1 or catalog.dead_runs(batch[0]):
            yield batch


def _packs_to_rely_on(store: Store, catalog: Catalog, merged: Collection[str]) -> list[Segment]:
    """Returns other packs with examples of the segments to merge, which the new pack need not write again.

    Damaged packs are left out, because the new pack would lose its own good copies. In an object store, no packs are
    returned, because another process may remove a pack at the same time.
    """
    if store.is_remote:
        return []
    others = {
        store.file(name, "examples"): segment
        for name, segment in catalog.needed.items()
        if segment.is_pack and name not in merged and not any(store.faults([segment], ["examples"]))
    }
    sharing = _sharing([store.file(name, "examples") for name in merged], others)
    return [segment for segment in sharing if _has_whole_examples(store, segment)]


def _has_whole_examples(store: Store, segment: Segment) -> bool:
    path = Path(store.file(segment.segment_id, "examples"))
    key = (str(path), segment.digests["examples"], path.stat().st_mtime_ns)
    if key not in _verified:
        if any(store.faults([segment], ["examples"], deep=True)):
            return False
        _verified.add(key)
    return True


def _sharing(own: Collection[str], others: Mapping[str, Segment]) -> list[Segment]:
    """Returns the segments of ``others`` that share an example with the files in ``own``.

    If a damaged file prevents the search, returns all segments.
    """
    if not others:
        return []
    statement = (
        f"SELECT DISTINCT filename FROM {parquet(*others)} "  # noqa: S608 - own paths, quoted
        f"WHERE content_id IN (SELECT content_id FROM {parquet(*own)})"
    )
    with scratch_connection() as connection:
        try:
            return [others[path] for (path,) in connection.execute(statement).fetchall()]
        except (duckdb.Error, UnicodeDecodeError):
            return list(others.values())
