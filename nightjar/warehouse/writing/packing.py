"""Merges small segments into larger ones, and removes those of which nothing is needed any more.

Sixteen segments of about the same size become one, sixteen of these become one again, up to packs of some 100,000
rollouts: what a publish adds is written three times in all, and a million rollouts are in some forty segments.
Readers go on with the old segments; these stay for an hour.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

from nightjar.errors import WarehouseError
from nightjar.scratch import scratch_folder
from nightjar.warehouse.database import connect_scratch, explained
from nightjar.warehouse.reading.damage import damage_named, listed, refuse_damaged
from nightjar.warehouse.reading.relations import selection
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.segments import PACK_PREFIX, Catalog, Segment, Source
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.publishing import write_files
from nightjar.warehouse.writing.shared_examples import packs_to_rely_on

FAN_IN = 16
"""How many segments of a size class are merged into one."""

LARGE_ROLLOUTS = 100_000
LARGE_BYTES = 100_000_000
"""A segment of so many rollouts, or so large, is not merged any more: a merge has to fit into memory."""

RETIRED_FOR = timedelta(hours=1)
"""How long a segment is kept that nobody needs, for those who are reading it."""

LOCK_TIMEOUT_SECONDS = 60.0
"""How long to wait for another process that packs, prunes or mends."""

_log = logging.getLogger(__name__)


@contextmanager
def alone_in(store: Store) -> Iterator[None]:
    """Holds the right to pack and to remove segments; waits for it.

    Raises:
        WarehouseError: another process has it all the time, or the folder cannot be written.
    """
    with store.packing_alone(timeout_seconds=LOCK_TIMEOUT_SECONDS) as alone:
        if not alone:
            raise WarehouseError(
                f"The warehouse {store} is being packed, pruned or mended by another process. Try again later."
            )
        yield


def tidy(store: Store) -> None:
    """Packs and replaces the snapshot; warns where that fails, because what was published is there already."""
    try:
        if not store.exists():
            return
        pack_as_needed(store)
    except (OSError, WarehouseError) as error:
        _log.warning("The run is published, but small segments were left unpacked: %s", error)
    write_snapshot(store)


def pack_as_needed(store: Store) -> int:
    """Merges segments while there are too many of a size, and removes what is retired, unless another process does so.

    Returns:
        How many packs were written.

    Raises:
        WarehouseError: the disk is full or broken; the warehouse is as it was.
    """
    packed = 0
    if store.is_remote:
        return packed
    with store.packing_alone() as alone:
        while alone and (crowd := crowded(store.catalog())):
            merge(store, crowd)
            packed += 1
        if alone:
            remove_retired(store)
    return packed


def pack_everything(store: Store, retired_for: timedelta = timedelta(0)) -> int:
    """Merges all small segments, whatever their number, and removes what is retired.

    Args:
        store: the warehouse.
        retired_for: how long what is replaced stays; in an object store it stays an hour at least.

    Returns:
        How many packs were written.

    Raises:
        WarehouseError: another process is packing, or the disk is full or broken.
    """
    with alone_in(store):
        batches = list(_batches(store.catalog()))
        for batch in batches:
            merge(store, batch)
        remove_retired(store, older_than=retired_for)
    return len(batches)


def crowded(catalog: Catalog) -> list[Segment]:
    """Returns segments of one size that are so many that they are to be merged, or else a large one, mostly outdated.

    None where there is neither.
    """
    classes: dict[int, list[Segment]] = defaultdict(list)
    for segment in _mergeable(catalog):
        classes[int(math.log(max(1, segment.rows["rollouts"]), FAN_IN))].append(segment)
    for _, members in sorted(classes.items()):
        if len(members) >= FAN_IN:
            return _up_to_large(members)
    mostly = (name for name, runs in outdated(catalog).items() if 2 * runs > len(catalog.segments[name].versions))
    return [catalog.segments[name] for name in mostly][:1]


def outdated(catalog: Catalog) -> dict[str, int]:
    """Returns the large segments that hold runs which were published again since, and how many; small ones get merged.

    Returns:
        segment_id to number of runs.
    """
    large = (one for one in catalog.needed.values() if _is_large([one]))
    return {segment.segment_id: len(dead) for segment in large if (dead := catalog.dead_runs(segment))}


def merge(store: Store, segments: Sequence[Segment], without: Sequence[str] = ()) -> None:
    """Writes a segment with all that counts in some, and that replaces them.

    Args:
        store: the warehouse, where this process alone is packing.
        segments: what to merge.
        without: runs to leave out, with the examples that no other run uses.

    Raises:
        WarehouseError: a segment is damaged, the disk is full or broken, or another machine removed one of the runs
            meanwhile; the warehouse is as it was.
    """
    try:
        _merge(store, segments, without)
    except OSError as error:
        raise WarehouseError(f"Cannot pack the warehouse {store}: {error.strerror or error}") from error


def _merge(store: Store, segments: Sequence[Segment], without: Sequence[str]) -> None:
    refuse_damaged(store, segments)
    catalog, started_at = store.catalog(), datetime.now(UTC)
    sources = [Source((s.segment_id,), (*catalog.dead_runs(s), *without)) for s in segments]
    versions = {
        run_id: version
        for segment, source in zip(segments, sources, strict=True)
        for run_id, version in segment.versions.items()
        if run_id not in source.without
    }
    with (
        scratch_folder() as spill,
        store.scratch() as scratch,
        damage_named(store, deep=False),
        explained(f"Cannot pack the warehouse {store}"),
        closing(connect_scratch(spill)) as connection,
    ):
        store.prepare(connection)
        pack = write_files(
            connection,
            scratch,
            segment_id=new_pack_id(),
            versions=versions,
            relations=_relations(store, catalog, sources, without),
            replaces=[segment.segment_id for segment in segments],
        )
        store.commit(pack, scratch)
    if store.is_remote and datetime.now(UTC) - started_at < RETIRED_FOR / 2:
        _withdraw_if_pruned(store, pack)


def _withdraw_if_pruned(store: Store, pack: Segment) -> None:
    """Removes a pack that holds a run which nobody else holds any more: another machine removed it meanwhile.

    All that the pack was made of is there still, also where it was replaced: that stays for ``RETIRED_FOR``. Who
    prunes looks for such packs as well, so that of two that miss each other one sees what the other did.
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
    """Returns a name for a pack that no other has."""
    return f"{PACK_PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def remove_retired(store: Store, older_than: timedelta = RETIRED_FOR) -> None:
    """Removes segments that nobody needs for some time, and what dead processes left half written.

    The oldest go first: a pack outlives what it replaces, else that would count again.

    Args:
        store: the warehouse, where this process alone is packing.
        older_than: for how long nobody needs them; in an object store ``RETIRED_FOR`` at least.
    """
    catalog, now = store.catalog(), datetime.now(UTC)
    stays = max(older_than, RETIRED_FOR) if store.is_remote else older_than
    packed_at: dict[str, datetime] = {}
    for pack in _by_age(catalog.segments.values()):
        for name in pack.replaces:
            packed_at.setdefault(name, pack.created_at)
    for segment in _by_age(catalog.retired.values()):
        retired_at = packed_at.get(segment.segment_id) or _replaced_at(catalog, segment)
        if now - retired_at >= stays:
            store.remove(segment.segment_id)
    store.remove_leftovers()


def _relations(store: Store, catalog: Catalog, sources: Sequence[Source], without: Sequence[str]) -> dict[str, str]:
    """Kind to what a pack of these sources holds: the examples without those that older packs keep."""
    merged = {segment_id for source in sources for segment_id in source.segment_ids}
    kept = packs_to_rely_on(store, catalog, merged)
    rows = {kind: selection(kind, sources, store.file) for kind in ("runs", "rollouts", "attempts")}
    contents = selection("examples", [Source(tuple(sorted(merged)))], store.file)
    known = selection("examples", [Source(kept)] if kept else [], store.file)
    used = f" AND content_id IN ({_used_contents(store, catalog, without)})" if without else ""
    return {
        "runs": f"{rows['runs']} ORDER BY run_id",
        "rollouts": f"{rows['rollouts']} ORDER BY run_id, example_id, rollout_index",
        "attempts": f"{rows['attempts']} ORDER BY run_id, finished_at",
        "examples": f"SELECT DISTINCT ON (content_id) * FROM ({contents}) "  # noqa: S608 - own paths, quoted
        f"WHERE content_id NOT IN (SELECT content_id FROM ({known})){used} ORDER BY content_id",
    }


def _used_contents(store: Store, catalog: Catalog, without: Sequence[str]) -> str:
    """The statement that selects the examples of all runs but these."""
    sources = [Source(source.segment_ids, (*source.without, *without)) for source in catalog.sources()]
    return f"SELECT content_id FROM ({selection('rollouts', sources, store.file)})"  # noqa: S608 - own paths, quoted


def _is_large(segments: Sequence[Segment]) -> bool:
    rollouts = sum(segment.rows["rollouts"] for segment in segments)
    return rollouts >= LARGE_ROLLOUTS or sum(segment.size for segment in segments) >= LARGE_BYTES


def _mergeable(catalog: Catalog) -> list[Segment]:
    return _by_age(segment for segment in catalog.needed.values() if not _is_large([segment]))


def _by_age(segments: Iterable[Segment]) -> list[Segment]:
    return sorted(segments, key=lambda segment: (segment.created_at, segment.segment_id))


def _up_to_large(segments: Sequence[Segment]) -> list[Segment]:
    chosen: list[Segment] = []
    for segment in segments:
        chosen.append(segment)
        if _is_large(chosen):
            break
    return chosen


def _batches(catalog: Catalog) -> Iterator[list[Segment]]:
    """Cuts all small segments, and all with runs that do not count, into batches of about a large one."""
    needed = catalog.needed.values()
    waiting = _by_age(segment for segment in needed if not _is_large([segment]) or catalog.dead_runs(segment))
    while waiting:
        batch = _up_to_large(waiting)
        waiting = waiting[len(batch) :]
        if len(batch) > 1 or catalog.dead_runs(batch[0]):
            yield batch


def _replaced_at(catalog: Catalog, segment: Segment) -> datetime:
    """When a newer version came of a run that a segment holds."""
    return min(catalog.holder_of(run_id).created_at for run_id in segment.versions)
