"""The parameters and the result of a query. Writes the result as CSV, JSON or a table."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from nightjar.core.text import shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

Parameters = Sequence[object] | Mapping[str, object]

AskedQuery = tuple[str, Parameters | None]

Columns: TypeAlias = "dict[str, NDArray[Any]]"
"""The columns of a result by name. A missing number is NaN, any other missing value is None."""


@dataclass(frozen=True)
class QueryResult:
    """The result of a query. ``types`` are DuckDB's names. JSON values are text. Equal column names get a number."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def write_csv(result: QueryResult, stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([value_text(value) for value in row] for row in result.rows)


def write_json(result: QueryResult, stream: TextIO) -> None:
    stream.write(json.dumps(as_records(result), indent=2, ensure_ascii=False, default=value_text) + "\n")


def as_records(result: QueryResult) -> list[dict[str, Any]]:
    """Returns rows for ``json.dumps(..., default=value_text)``. JSON is parsed; NaN and infinities become None."""
    readers = [json.loads if kind == "JSON" else plain_value for kind in result.types]
    return [
        {
            name: None if value is None else reader(value)
            for name, reader, value in zip(result.columns, readers, row, strict=True)
        }
        for row in result.rows
    ]


def as_table(result: QueryResult, most_rows: int = 1_000, longest_cell: int = 200) -> list[dict[str, Any]]:
    return [
        {name: _short(value, longest_cell) for name, value in zip(result.columns, row, strict=True)}
        for row in result.rows[:most_rows]
    ]


def _short(value: Any, longest: int) -> bool | int | float | str | None:
    plain = plain_value(value)
    if plain is None or isinstance(plain, bool | int | float):
        return plain
    return shortened(value_text(value), longest)


def value_text(value: Any) -> str:
    """Returns a value as text. NULL is empty, maps and lists are JSON, and bytes are hexadecimal.

    >>> value_text(None), value_text(True), value_text({"a": [1.5]}), value_text(b"ab")
    ('', 'true', '{"a": [1.5]}', '6162')
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(plain_value(value), ensure_ascii=False, default=value_text)
    return str(value)


def plain_value(value: Any) -> Any:
    """Returns a value that JSON can hold. NaN becomes None, and keys become text.

    >>> plain_value({1: float("nan"), "b": Decimal("0.5")})
    {'1': None, 'b': 0.5}
    """
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
