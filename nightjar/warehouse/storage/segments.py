"""``Segment``: the files of one publish or one pack. ``Catalog``: the segments, and which of their runs count.

A segment is a folder of Parquet files and a ``segment.json``, written under another name and renamed. It never changes.
A pack merges many segments and replaces them. The ``segment.json`` files alone decide what counts, whatever the order
of writing:

- if a run has several versions, the newest counts; if versions are equal, the one in the larger segment counts;
- a segment that a pack replaces does not count;
- a part of a run counts until the whole run is published, see ``nightjar/core/parts.py``.

A version is text in sort order: the number of attempts in the ledger (which only grows; for an imported run, which has
no ledger, the number of rollouts), the time of the newest attempt, the end of the run, the time of the publish, and a
hash of the content.

>>> make_version(attempts=500, newest_attempt=1763712000.5, ended=1763712001, published=1763712002, digest="9f03")
'000000500-1763712000500-1763712001000-1763712002000-9f03'
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any, Self
from urllib.parse import quote

import orjson

from nightjar.core.parts import Part
from nightjar.errors import WarehouseError
from nightjar.warehouse.database import newer
from nightjar.warehouse.storage.tables import SCHEMA

RUN_KINDS = ("runs", "rollouts", "attempts")
KINDS = (*RUN_KINDS, "examples")

ORDER = {
    "runs": "run_id",
    "rollouts": "run_id, example_id, rollout_index",
    "attempts": "run_id, finished_at",
    "examples": "content_id",
}

COMMIT = "segment.json"
"""The file whose presence makes a segment exist."""

PACK_PREFIX = "pack-"

PARQUET_OPTIONS = (
    "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 8192, ROW_GROUP_SIZE_BYTES 33554432"
)
"""Short row groups let a query read one run's texts alone, and let huge texts fit into memory.

With level 3, files would be a seventh smaller, but would take a third longer to read and half as long again to write.
"""

_LONGEST_NAME = 120

_PROGRESS_FIELDS = 3


@dataclass(frozen=True)
class Segment:
    """A segment, as described by its ``segment.json``. ``schema`` is the version of the segment's tables.

    ``versions`` is by run id. ``rows``, ``sizes`` (bytes) and ``digests`` (SHA-256) are by kind. ``replaces`` has the
    ids of the segments that a pack replaces. The segment of one run replaces no segment.
    """

    segment_id: str
    versions: Mapping[str, str]
    rows: Mapping[str, int]
    sizes: Mapping[str, int]
    created_at: datetime
    digests: Mapping[str, str]
    nightjar_version: str
    replaces: Sequence[str] = ()
    schema: int = SCHEMA

    @property
    def is_pack(self) -> bool:
        return bool(self.replaces)

    @property
    def size(self) -> int:
        return sum(self.sizes.values())

    def dump(self) -> bytes:
        content = {name: value for name, value in vars(self).items() if name != "segment_id"}
        return orjson.dumps({"schema": self.schema, **content}, option=orjson.OPT_INDENT_2)

    @classmethod
    def load(cls, segment_id: str, content: bytes, advice: str = "") -> Self:
        """Raises WarehouseError for a damaged file and (without ``__cause__``) for a newer version."""
        try:
            read = orjson.loads(content)
            found = int(read["schema"])
            if found <= SCHEMA:
                known: dict[str, Any] = {name: value for name, value in read.items() if name in _FIELDS}
                known["created_at"] = datetime.fromisoformat(known["created_at"])
                known["replaces"] = tuple(known["replaces"])
                segment = cls(segment_id, **known)
                _check(segment)
                return segment
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"Segment {segment_id!r} is damaged: {COMMIT}: {error}"
            raise WarehouseError(f"{message}. {advice}" if advice else message) from error
        raise newer(found, SCHEMA)


_FIELDS = {described.name for described in fields(Segment)} - {"segment_id"}


def _check(segment: Segment) -> None:
    for name, expected in (("versions", str), ("rows", int), ("sizes", int), ("digests", str)):
        found = getattr(segment, name)
        if not isinstance(found, dict) or not all(isinstance(value, expected) for value in found.values()):
            raise ValueError(f"{name!r} is {found!r}")
        if name != "versions" and (missing := [kind for kind in KINDS if kind not in found]):
            raise ValueError(f"{name!r} is without {missing[0]!r}")


def segment_id_of(run_id: str, version: str) -> str:
    """Returns the name of a published run's segment, such as ``gsm8k%2F1.000000500-e5``."""
    name = quote(run_id, safe="").replace(".", "%2E")
    if len(name) > _LONGEST_NAME:
        name = hashlib.sha256(run_id.encode()).hexdigest()
    return f"{name}.{version}"


def is_pack_id(segment_id: str) -> bool:
    """Returns whether a segment is a pack. Only the name of a published run's segment has a dot."""
    return segment_id.startswith(PACK_PREFIX) and "." not in segment_id


@dataclass(frozen=True)
class Source:
    """Segments with the same version of the tables. ``without`` are runs in them that do not count."""

    segment_ids: tuple[str, ...]
    without: tuple[str, ...] = ()
    schema: int = SCHEMA

    @classmethod
    def all_of(cls, segments: Iterable[Segment]) -> list[Self]:
        names: dict[int, list[str]] = defaultdict(list)
        for segment in sorted(segments, key=lambda segment: segment.segment_id):
            names[segment.schema].append(segment.segment_id)
        return [cls(tuple(own), schema=schema) for schema, own in sorted(names.items(), reverse=True)]


@dataclass(frozen=True)
class Catalog:
    """The segments of a warehouse by segment_id, and which of their runs count."""

    segments: Mapping[str, Segment] = field(default_factory=dict)

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Self:
        return cls({segment.segment_id: segment for segment in segments})

    @cached_property
    def replaced(self) -> frozenset[str]:
        named = (name for segment in self.segments.values() for name in segment.replaces)
        return frozenset(name for name in named if name in self.segments)

    @cached_property
    def holders(self) -> Mapping[str, Segment]:
        """The segment that holds each run's current version, by run_id."""
        best: dict[str, tuple[str, int, str]] = {}
        for segment in self.segments.values():
            if segment.segment_id in self.replaced:
                continue
            for run_id, version in segment.versions.items():
                rank = (version, len(segment.versions), segment.segment_id)
                best[run_id] = max(best.get(run_id, rank), rank)
        return {run_id: self.segments[rank[2]] for run_id, rank in best.items() if _whole_of(run_id) not in best}

    @cached_property
    def live(self) -> Mapping[str, Segment]:
        return {segment.segment_id: segment for segment in self.holders.values()}

    @cached_property
    def retired(self) -> Mapping[str, Segment]:
        """Replaced segments and old versions. A pack stays until it is replaced: later packs rely on it."""
        return {
            name: segment
            for name, segment in self.segments.items()
            if name in self.replaced or (name not in self.live and not segment.is_pack)
        }

    @cached_property
    def needed(self) -> Mapping[str, Segment]:
        """All segments that are not retired, in order of their segment_id."""
        return {name: segment for name, segment in sorted(self.segments.items()) if name not in self.retired}

    def dead_runs(self, segment: Segment) -> tuple[str, ...]:
        own = {run_id for run_id in segment.versions if self.holder_of(run_id).segment_id == segment.segment_id}
        return tuple(sorted(segment.versions.keys() - (own & self.holders.keys())))

    def holder_of(self, run_id: str) -> Segment:
        """Returns the segment of a run, or of the run that it is a part of."""
        return self.holders.get(run_id) or self.holders[str(_whole_of(run_id))]

    def sources(self) -> list[Source]:
        dead = {name: self.dead_runs(segment) for name, segment in sorted(self.live.items())}
        whole = Source.all_of(self.live[name] for name in dead if not dead[name])
        return whole + [Source((name,), gone, self.live[name].schema) for name, gone in dead.items() if gone]

    def example_sources(self) -> list[Source]:
        return Source.all_of(self.needed.values())


def make_version(*, attempts: int, newest_attempt: float, ended: float, published: float, digest: str) -> str:
    """Returns the version of a run. Times are Unix times, 0 if unknown. A newer version is greater."""
    moments = "-".join(f"{max(0, round(moment * 1000)):013d}" for moment in (newest_attempt, ended, published))
    return f"{attempts:09d}-{moments}-{digest}"


def is_held(held: str | None, offered: str) -> bool:
    """Returns whether a held version has the same content as an offered version, or newer content."""
    if held is None:
        return False
    return is_same(held, offered) or held.split("-")[:_PROGRESS_FIELDS] > offered.split("-")[:_PROGRESS_FIELDS]


def is_same(held: str, offered: str) -> bool:
    return held.rpartition("-")[2] == offered.rpartition("-")[2]


def _whole_of(run_id: str) -> str | None:
    part = Part.of(run_id)
    return part.run_id if part else None
