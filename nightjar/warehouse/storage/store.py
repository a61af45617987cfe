"""``Store``: what keeps the segments of a warehouse; a local folder, or an object store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import duckdb

from nightjar.warehouse.storage.prices import Price
from nightjar.warehouse.storage.segments import Catalog, Segment


class Readable(Protocol):
    """Prepares a connection for queries."""

    def readable(self) -> str:
        """Returns the beginning of all paths that a query may read."""

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes a connection able to read what was published."""


class Store(Readable, Protocol):
    """Keeps segments, which never change, and a list of prices.

    ``str()`` of it is the location for messages, without credentials.
    """

    @property
    def is_remote(self) -> bool:
        """Says that other machines write here too, and no lock keeps them out.

        Then segments are packed on request only, a pack holds all examples of its rollouts because another process
        may pack at the same time, and what was packed stays for a while, because a reader cannot hold it open.
        """

    def exists(self) -> bool:
        """Says whether anything was published here."""

    def make(self) -> None:
        """Makes the place where there is none.

        Raises:
            WarehouseError: it cannot be made.
        """

    def catalog(self) -> Catalog:
        """Returns the segments that are there now.

        Raises:
            WarehouseError: one is damaged, or the place cannot be read.
        """

    def file(self, segment_id: str, kind: str) -> str:
        """Returns where DuckDB finds a file of a segment."""

    def advice(self, segment_id: str, *, is_hidden: bool = False) -> str:
        """Says in a sentence what to do about a damaged segment.

        Args:
            segment_id: which.
            is_hidden: whether the damage shows only when all of the file is read.
        """

    def prices(self) -> list[Price]:
        """Returns what models cost.

        Raises:
            WarehouseError: the list is damaged, or the place cannot be read.
        """

    def write_prices(self, prices: Sequence[Price]) -> None:
        """Replaces what models cost."""

    def scratch(self) -> AbstractContextManager[Path]:
        """Makes a local folder to write a segment in, and removes it afterwards."""

    def commit(self, segment: Segment, scratch: Path) -> bool:
        """Makes what is in a scratch folder a segment.

        Returns:
            False where the segment was there already.

        Raises:
            WarehouseError: the place cannot be written; the warehouse is as it was.
        """

    def remove(self, segment_id: str) -> None:
        """Removes a segment at once, as far as readers are concerned, then its files."""

    def remove_leftovers(self) -> None:
        """Removes what dead processes left half written."""

    def packing_alone(self, timeout_seconds: float = 0) -> AbstractContextManager[bool]:
        """Holds the right to pack and to remove segments; yields whether it could be had."""
