"""``LineFile``: records that are kept beside the segments, in a file with one a line, and in SQL as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from nightjar.errors import WarehouseError

Row = TypeVar("Row")


@dataclass(frozen=True)
class LineFile(Generic[Row]):
    """A kind of records.

    Attributes:
        table: in the schema ``segments``; the file is called like it.
        column: of the table; it has the record as JSON.
        kind: a dataclass.
        key: the fields that tell records apart, and by which they are ordered.
    """

    table: str
    column: str
    kind: type[Row]
    key: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The name of the file in the folder of the warehouse."""
        return f"{self.table}.jsonl"

    @property
    def columns(self) -> str:
        """The columns of the table, as SQL declares them."""
        return f"{self.column} JSON NOT NULL"

    def load(self, content: bytes) -> list[Row]:
        """Reads the content of the file.

        Raises:
            WarehouseError: it is damaged; the line is named.
        """
        found = []
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                found.append(self._adapter.validate_json(line))
            except ValidationError as error:
                raise WarehouseError(f"{self.file_name}, line {number}: {error.errors()[0]['msg']}") from error
        return found

    def lines(self, rows: Iterable[Row]) -> list[str]:
        """Returns the lines of the file, in their order; a later record with the key of another replaces it."""
        told = {self.key_of(row): row for row in rows}
        return [self._adapter.dump_json(told[key]).decode() for key in sorted(told)]

    def dump(self, rows: Iterable[Row]) -> bytes:
        """Returns the content of the file."""
        return "".join(f"{line}\n" for line in self.lines(rows)).encode()

    def key_of(self, row: Row) -> tuple[str, ...]:
        """Returns what tells a record apart."""
        return tuple(str(getattr(row, name)) for name in self.key)

    @cached_property
    def _adapter(self) -> TypeAdapter[Row]:
        return TypeAdapter(self.kind)
