"""Finds the packs whose examples a new one need not write again.

A damaged pack is not among them: a new one that relied on it would lose its own good copies with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

import duckdb

from nightjar.scratch import scratch_folder
from nightjar.warehouse.database import connect_scratch, parquet
from nightjar.warehouse.storage.segments import Catalog, Segment
from nightjar.warehouse.storage.store import Store

_compared: set[tuple[str, str, int]] = set()
"""Files that were compared with what was written into them: path, digest and time of the last change in ns."""


def packs_to_rely_on(store: Store, catalog: Catalog, merged: Collection[str]) -> tuple[str, ...]:
    """Returns the other packs that hold examples of the segments to be merged, as they were written.

    In an object store there are none: another process may remove a pack at the same time.
    """
    if store.is_remote:
        return ()
    others = {
        store.file(name, "examples"): segment
        for name, segment in catalog.needed.items()
        if segment.is_pack and name not in merged and not any(store.faults([segment], ["examples"]))
    }
    sharing = _sharing([store.file(name, "examples") for name in merged], others)
    return tuple(segment.segment_id for segment in sharing if _has_whole_examples(store, segment))


def _has_whole_examples(store: Store, segment: Segment) -> bool:
    """Says whether the examples of a segment are as they were written; reads a file once in a process."""
    path = Path(store.file(segment.segment_id, "examples"))
    key = (str(path), segment.digests["examples"], path.stat().st_mtime_ns)
    if key not in _compared:
        if any(store.faults([segment], ["examples"], deep=True)):
            return False
        _compared.add(key)
    return True


def _sharing(own: Collection[str], others: Mapping[str, Segment]) -> list[Segment]:
    """Those of some segments that hold one of our examples; all of them, where a damaged one prevents the search."""
    if not others:
        return []
    statement = (
        f"SELECT DISTINCT filename FROM {parquet(*others)} "  # noqa: S608 - own paths, quoted
        f"WHERE content_id IN (SELECT content_id FROM {parquet(*own)})"
    )
    with scratch_folder() as spill, closing(connect_scratch(spill)) as connection:
        try:
            return [others[path] for (path,) in connection.execute(statement).fetchall()]
        except (duckdb.Error, UnicodeDecodeError):
            return list(others.values())
