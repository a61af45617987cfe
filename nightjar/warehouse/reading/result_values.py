"""The values of a query's result as text, and as what JSON can hold."""

from __future__ import annotations

import csv
import json
import math
from decimal import Decimal
from typing import Any, Protocol

from nightjar.warehouse.reading.result import QueryResult


class Writable(Protocol):
    """What takes text."""

    def write(self, text: str, /) -> object:
        """Takes some."""


def write_csv(result: QueryResult, stream: Writable) -> None:
    """Writes a result as CSV, with a line of names."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([value_text(value) for value in row] for row in result.rows)


def write_json(result: QueryResult, stream: Writable) -> None:
    """Writes a result as JSON: a list with an object a row."""
    stream.write(json.dumps(as_records(result), indent=2, ensure_ascii=False, default=value_text) + "\n")


def as_records(result: QueryResult) -> list[dict[str, Any]]:
    """Returns one object per row that ``json.dumps(..., default=value_text)`` can write.

    Columns of type JSON are parsed; NaN and the infinities, for which JSON has no word, are None.
    """
    readers = [json.loads if kind == "JSON" else plain_value for kind in result.types]
    return [
        {
            name: None if value is None else reader(value)
            for name, reader, value in zip(result.columns, readers, row, strict=True)
        }
        for row in result.rows
    ]


def as_table(result: QueryResult, most_rows: int = 1_000, longest_cell: int = 200) -> list[dict[str, Any]]:
    """Returns the first rows for a table that is looked at: texts are cut, maps and lists and JSON are text.

    Args:
        result: the rows.
        most_rows: how many of them.
        longest_cell: how many characters of a text.
    """
    return [
        {name: _short(value, longest_cell) for name, value in zip(result.columns, row, strict=True)}
        for row in result.rows[:most_rows]
    ]


def _short(value: Any, longest: int) -> bool | int | float | str | None:
    plain = plain_value(value)
    if plain is None or isinstance(plain, bool | int | float):
        return plain
    text = value_text(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def value_text(value: Any) -> str:
    """Returns a value in words: nothing for NULL, JSON for maps and lists, hexadecimal for bytes.

    Example:
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
    """Returns a value with what JSON has no word for replaced: None for NaN, text for other keys.

    Example:
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
