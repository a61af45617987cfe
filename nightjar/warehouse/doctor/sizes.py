"""``Sizes``: how many bytes of a warehouse are for what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nightjar.warehouse.doctor.files import uncompressed_bytes
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import KINDS, Catalog, Segment


@dataclass(frozen=True)
class Sizes:
    """How many bytes there are.

    Attributes:
        live: in segments that are needed.
        retired: in segments that nobody needs any more.
        leftovers: in what dead processes left half written.
        kinds: of ``live``, by kind of file.
        uncompressed: what ``live`` holds, uncompressed.
    """

    live: int = 0
    retired: int = 0
    leftovers: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    uncompressed: int = 0


def measure(folder: Folder, catalog: Catalog, sound: Sequence[Segment], leftovers: Iterable[Path]) -> Sizes:
    """Returns the sizes of a warehouse.

    Args:
        folder: the warehouse.
        catalog: its segments.
        sound: those of them that are needed and can be read.
        leftovers: files and folders that dead processes left.
    """
    needed = [segment for name, segment in catalog.segments.items() if name not in catalog.retired]
    return Sizes(
        live=sum(segment.size for segment in needed),
        retired=sum(segment.size for segment in catalog.retired.values()),
        leftovers=sum(map(length, leftovers)),
        kinds={kind: sum(segment.sizes[kind] for segment in needed) for kind in KINDS},
        uncompressed=uncompressed_bytes(folder, sound),
    )


def length(path: Path) -> int:
    """Returns how many bytes a file, or all files in a folder, have."""
    total = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        with suppress(OSError):
            total += file.lstat().st_size
    return total
