"""``Segment``: what one publish, or one packing, left in the warehouse; ``Catalog``: which of them count.

A segment is a folder of Parquet files and a ``segment.json``, written beside and renamed into place. It never
changes afterwards. A segment of one run is a publish; one of many runs is a pack, which replaces the segments it was
made of. What counts follows from the ``segment.json`` files alone, whoever comes in which order:

- of a run that was published several times the newest version counts, and of equal ones the one in the larger segment;
- a segment that a pack replaces does not count, nor does one with nothing that counts;
- a part of a run counts until the run itself is there, see ``nightjar/parts.py``.

A version is text that sorts: the number of attempts in the ledger, which only grows; the time of the newest of them;
the time of the run's end; the time of the publish; and a hash of the content.

>>> make_version(attempts=500, newest_attempt=1763712000.5, ended=1763712001, published=1763712002, digest="9f03")
'000000500-1763712000500-1763712001000-1763712002000-9f03'
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import orjson

from nightjar.errors import WarehouseError
from nightjar.parts import Part
from nightjar.warehouse.database import newer

KINDS = ("runs", "rollouts", "attempts", "examples")
"""The files of a segment, without ``.parquet``."""

SCHEMA = 3
"""The version of the tables of a segment."""

_LONGEST_NAME = 120
"""Of a run in the name of a folder; a longer one is hashed."""

_PROGRESS_FIELDS = 3

PACK_PREFIX = "pack-"
"""Begins the name of a pack."""

COMMIT = "segment.json"
"""The file that makes a segment exist."""


@dataclass(frozen=True)
class Segment:
    """A segment, as its ``segment.json`` describes it.

    Attributes:
        segment_id: the name of its folder.
        versions: run_id to the version of the run's content.
        rows: kind to number of rows.
        sizes: kind to length of its file, in bytes.
        created_at: when it was written.
        replaces: ids of the segments that a pack was made of; empty for the segment of one run.
        nightjar_version: what wrote it.
        digests: kind to the SHA-256 of its file, in hexadecimal.
    """

    segment_id: str
    versions: Mapping[str, str]
    rows: Mapping[str, int]
    sizes: Mapping[str, int]
    created_at: datetime
    digests: Mapping[str, str]
    nightjar_version: str
    replaces: Sequence[str] = ()

    @property
    def is_pack(self) -> bool:
        """Says whether it was made of other segments."""
        return bool(self.replaces)

    @property
    def size(self) -> int:
        """The length of all its files, in bytes."""
        return sum(self.sizes.values())

    def dump(self) -> bytes:
        """Returns the content of its ``segment.json``."""
        content = {name: value for name, value in vars(self).items() if name != "segment_id"}
        return orjson.dumps({"schema": SCHEMA, **content}, option=orjson.OPT_INDENT_2)

    @classmethod
    def load(cls, segment_id: str, content: bytes, advice: str = "") -> Self:
        """Returns the segment that a ``segment.json`` describes; what a later Nightjar may say besides does not matter.

        Args:
            segment_id: the name of its folder.
            content: of the ``segment.json``.
            advice: ends the message about a damaged one.

        Raises:
            WarehouseError: the file is damaged, or a newer Nightjar wrote it.
        """
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
    """Raises a ValueError where what it says of its runs or files is not of the kind that it should be."""
    for name, expected in (("versions", str), ("rows", int), ("sizes", int), ("digests", str)):
        found = getattr(segment, name)
        if not isinstance(found, dict) or not all(isinstance(value, expected) for value in found.values()):
            raise ValueError(f"{name!r} is {found!r}")
        if name != "versions" and (missing := [kind for kind in KINDS if kind not in found]):
            raise ValueError(f"{name!r} is without {missing[0]!r}")


def segment_id_of(run_id: str, version: str) -> str:
    """Returns the name of the segment that a publish of this content makes.

    Example:
        >>> segment_id_of("gsm8k/1", "000000500-e5")
        'gsm8k%2F1.000000500-e5'
    """
    name = quote(run_id, safe="").replace(".", "%2E")
    if len(name) > _LONGEST_NAME:
        name = hashlib.sha256(run_id.encode()).hexdigest()
    return f"{name}.{version}"


def is_pack_id(segment_id: str) -> bool:
    """Says by its name whether a segment is a pack; what a publish makes has a dot in its name.

    Example:
        >>> is_pack_id("pack-20261121T060000-0a1b2c3d"), is_pack_id("pack-of-wolves.000000500-e5")
        (True, False)
    """
    return segment_id.startswith(PACK_PREFIX) and "." not in segment_id


def digest_of(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal, as ``sha256sum`` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Source:
    """Segments to read together, and the runs in them that do not count."""

    segment_ids: tuple[str, ...]
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Catalog:
    """The segments that are there, and which of their runs count.

    Attributes:
        segments: segment_id to segment.
    """

    segments: Mapping[str, Segment] = field(default_factory=dict)

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Self:
        """Returns the catalog of these segments."""
        return cls({segment.segment_id: segment for segment in segments})

    @cached_property
    def replaced(self) -> frozenset[str]:
        """Ids of the segments here that a pack was made of."""
        named = (name for segment in self.segments.values() for name in segment.replaces)
        return frozenset(name for name in named if name in self.segments)

    @cached_property
    def holders(self) -> Mapping[str, Segment]:
        """run_id to the segment that holds what counts of it."""
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
        """segment_id to the segments that hold something that counts."""
        return {segment.segment_id: segment for segment in self.holders.values()}

    @cached_property
    def retired(self) -> Mapping[str, Segment]:
        """segment_id to the segments of which nothing is needed any more: replaced ones, and old versions of a run.

        A pack stays as long as no other is made of it, because later ones rely on its examples.
        """
        return {
            name: segment
            for name, segment in self.segments.items()
            if name in self.replaced or (name not in self.live and not segment.is_pack)
        }

    @cached_property
    def needed(self) -> Mapping[str, Segment]:
        """segment_id to the segments of which something is needed, in the order of their names."""
        return {name: segment for name, segment in sorted(self.segments.items()) if name not in self.retired}

    def dead_runs(self, segment: Segment) -> tuple[str, ...]:
        """Returns the runs in a segment that count elsewhere, in order."""
        own = {run_id for run_id in segment.versions if self.holder_of(run_id).segment_id == segment.segment_id}
        return tuple(sorted(segment.versions.keys() - (own & self.holders.keys())))

    def holder_of(self, run_id: str) -> Segment:
        """Returns the segment that holds what counts of a run that is known, or of the run that it is a part of."""
        return self.holders.get(run_id) or self.holders[str(_whole_of(run_id))]

    def sources(self) -> list[Source]:
        """Returns what a query of runs, rollouts or attempts reads."""
        whole, partial = [], []
        for name, segment in sorted(self.live.items()):
            dead = self.dead_runs(segment)
            if dead:
                partial.append(Source((name,), dead))
            else:
                whole.append(name)
        return [*([Source(tuple(whole))] if whole else []), *partial]

    def example_sources(self) -> list[Source]:
        """Returns what a query of examples reads."""
        return [Source(tuple(self.needed))] if self.needed else []


def make_version(*, attempts: int, newest_attempt: float, ended: float, published: float, digest: str) -> str:
    """Returns a version; moments are in Unix time, 0 where there is none."""
    moments = "-".join(f"{max(0, round(moment * 1000)):013d}" for moment in (newest_attempt, ended, published))
    return f"{attempts:09d}-{moments}-{digest}"


def is_held(held: str | None, offered: str) -> bool:
    """Says whether a warehouse that holds a version needs no other: it has this content, or that of a later moment.

    Example:
        >>> is_held("000000500-1763712000500-1763712001000-1763712002000-9f03",
        ...         "000000499-1763712000400-1763712003000-1763712004000-11aa")
        True
    """
    if held is None:
        return False
    return is_same(held, offered) or _progress(held) > _progress(offered)


def is_same(held: str, offered: str) -> bool:
    """Says whether two versions are of the same content."""
    return _digest(held) == _digest(offered)


def _whole_of(run_id: str) -> str | None:
    part = Part.of(run_id)
    return part.run_id if part else None


def _digest(version: str) -> str:
    return version.rpartition("-")[2]


def _progress(version: str) -> list[str]:
    return version.split("-")[:_PROGRESS_FIELDS]
