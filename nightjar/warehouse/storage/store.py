"""``Store``: what keeps the segments of a warehouse; a local folder, or an object store.

What differs between the two is a method here, or one of the attributes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.location import missing
from nightjar.warehouse.storage import prices
from nightjar.warehouse.storage.decisions import COMPARISONS, GATE_DECISIONS
from nightjar.warehouse.storage.line_files import LineFile, Row
from nightjar.warehouse.storage.nights import NIGHTS
from nightjar.warehouse.storage.notes import NOTES
from nightjar.warehouse.storage.prices import Price
from nightjar.warehouse.storage.segments import KINDS, Catalog, Segment

Kept = TypeVar("Kept")

LINE_FILES: tuple[LineFile[Any], ...] = (NIGHTS, COMPARISONS, GATE_DECISIONS, NOTES)
"""What is kept beside the segments, with a record a line."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a file of a segment.

    Attributes:
        segment_id: the segment.
        file: its name in the folder of the segment.
        what: a predicate for messages.
        is_hidden: whether it shows only when all of the file is read.
        is_damage: False where the file cannot be looked at, for instance because a right is missing.
    """

    segment_id: str
    file: str
    what: str
    is_hidden: bool = False
    is_damage: bool = True

    @classmethod
    def of(cls, segment: Segment, kind: str, what: str, *, is_hidden: bool = False, is_damage: bool = True) -> Fault:
        """Returns what is wrong with a Parquet file."""
        return cls(segment.segment_id, f"{kind}.parquet", what, is_hidden, is_damage)


class Records(NamedTuple):
    """What is kept beside the segments.

    Attributes:
        prices: what models cost.
        lines: those of each of ``LINE_FILES``, in its order.
    """

    prices: tuple[Price, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ((),) * len(LINE_FILES)


class Readable(Protocol):
    """Prepares a connection for queries."""

    def readable(self) -> str:
        """Returns the beginning of all paths that a query may read."""

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes a connection able to read what was published."""


class Store(ABC):
    """Keeps segments, which never change, and beside them prices, nights and decisions.

    ``str()`` of it is the location for messages, without credentials. Its methods raise a WarehouseError where the
    place cannot be read or written, and where what they read is damaged or of a newer Nightjar.

    Attributes:
        is_remote: whether other machines write here too, and no lock keeps them out. Then segments are packed on
            request only, a pack holds all examples of its rollouts because another process may pack at the same time,
            and what was packed stays for a while, because a reader cannot hold it open.
        place: the location in full.
        path: of the folder on this machine, where ``nightjar.duckdb`` and the locks are too; None elsewhere.
    """

    is_remote: bool
    place: str
    path: Path | None

    @abstractmethod
    def exists(self) -> bool:
        """Says whether anything was published here."""

    def require(self) -> None:
        """Makes sure that something was published here."""
        if not self.exists():
            raise missing(self.place)

    @abstractmethod
    def make(self) -> None:
        """Makes the place where there is none."""

    @abstractmethod
    def try_to_write(self) -> None:
        """Finds out whether a file can be made here; leaves nothing behind."""

    def check_writable(self) -> None:
        """Finds out whether segments can be written, and whether those that are there can be read."""
        self.try_to_write()
        self.catalog()

    @abstractmethod
    def catalog(self) -> Catalog:
        """Returns the segments that are there now."""

    def undescribed(self, catalog: Catalog) -> set[str]:  # noqa: ARG002 - an upload that goes on looks like that
        """Returns the names of what would be segments of a catalog, had they not lost their ``segment.json``."""
        return set()

    @abstractmethod
    def file(self, segment_id: str, kind: str) -> str:
        """Returns where DuckDB finds a file of a segment."""

    @abstractmethod
    def faults(
        self, segments: Iterable[Segment], kinds: Collection[str] = KINDS, *, deep: bool = False
    ) -> Iterator[Fault]:
        """Yields which files of segments are missing, or have another length than they should have.

        Args:
            segments: as ``segment.json`` describes them.
            kinds: of the files that are looked at.
            deep: compares all of each file with its SHA-256; in an object store that would fetch it, and is not done.
        """

    @abstractmethod
    def advice(self, segment_id: str, *, is_hidden: bool = False) -> str:
        """Says in a sentence what to do about a damaged segment.

        Args:
            segment_id: which.
            is_hidden: whether the damage shows only when all of the file is read.
        """

    def doubt(self) -> str:
        """Says in sentences what to do about an error that may come of damage; empty where nothing can be done."""
        return ""

    @abstractmethod
    def readable(self) -> str:
        """Returns the beginning of all paths that a query may read."""

    @abstractmethod
    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes a connection able to read what was published."""

    @abstractmethod
    def read_beside(self, name: str) -> bytes | None:
        """Returns a file that is kept beside the segments; None where there is none."""

    @abstractmethod
    def write_beside(self, name: str, content: bytes) -> None:
        """Replaces a file that is kept beside the segments."""

    @contextmanager
    def changing_beside(self, name: str) -> Iterator[None]:  # noqa: ARG002 - nothing to wait for
        """Keeps other processes from changing such a file meanwhile, where there is a lock."""
        yield

    def prices(self) -> list[Price]:
        """Returns what models cost; an empty list where that is not known."""
        return self._kept(prices.FILE_NAME, prices.load_prices)

    def write_prices(self, changed: Sequence[Price]) -> None:
        """Replaces what models cost."""
        self.write_beside(prices.FILE_NAME, prices.dump_prices(changed).encode())

    @contextmanager
    def changing_prices(self) -> Iterator[list[Price]]:
        """Gives the prices to a body that changes the list, and writes them afterwards."""
        with self.changing_beside(prices.FILE_NAME):
            changed = self.prices()
            yield changed
            self.write_prices(changed)

    def rows(self, file: LineFile[Row]) -> list[Row]:
        """Returns the records of a kind."""
        return self._kept(file.file_name, file.load)

    def write_rows(self, file: LineFile[Row], rows: Sequence[Row]) -> None:
        """Adds records of a kind, or replaces them."""
        with self.changing_beside(file.file_name):
            self.write_beside(file.file_name, file.dump([*self.rows(file), *rows]))

    def records(self) -> Records:
        """Returns all that is kept beside the segments."""
        lines = (tuple(self._kept(file.file_name, partial(_lines, file))) for file in LINE_FILES)
        return Records(tuple(self.prices()), tuple(lines))

    def _kept(self, name: str, load: Callable[[bytes], list[Kept]]) -> list[Kept]:
        content = self.read_beside(name)
        try:
            return [] if content is None else load(content)
        except WarehouseError as error:
            raise WarehouseError(f"{error}. Mend it, or remove the file: {self.beside(name)}") from error

    def beside(self, name: str) -> str:
        """Returns where a file is that is kept beside the segments, for messages."""
        return f"{self}/{name}"

    @abstractmethod
    def scratch(self) -> AbstractContextManager[Path]:
        """Makes a local folder to write a segment in, and removes it afterwards."""

    @abstractmethod
    def commit(self, segment: Segment, scratch: Path) -> bool:
        """Makes what is in a scratch folder a segment.

        Returns:
            False where the segment was there already.
        """

    @abstractmethod
    def remove(self, segment_id: str) -> None:
        """Removes a segment at once, as far as readers are concerned, then its files."""

    @abstractmethod
    def filesystem(self) -> tuple[Any, str]:
        """Returns fsspec's filesystem of the place, and the path of the place in it."""

    @abstractmethod
    def remove_leftovers(self) -> None:
        """Removes what dead processes left half written."""

    @contextmanager
    def packing_alone(self, timeout_seconds: float = 0) -> Iterator[bool]:  # noqa: ARG002 - nothing to wait for
        """Holds the right to pack and to remove segments; yields whether it could be had.

        Where there is no lock, nothing keeps other machines from doing so meanwhile, and each looks afterwards.
        """
        yield True


@lru_cache(maxsize=32)
def _lines(file: LineFile[Any], content: bytes) -> list[str]:
    """Returns the checked lines of a file: every query asks for them, and a year of gates has megabytes."""
    return file.lines(file.load(content))
