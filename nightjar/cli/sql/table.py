"""Rows as a table for the eyes, or as one block a row where the terminal is too narrow for that.

On a terminal long cells are cut, numbers are rounded and only the first rows are shown, unless all is asked for. What
stands between « and » in a cell is not cut off: it is what a search was for. In a pipe or a file everything is there,
one line a row.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime
from itertools import zip_longest
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from nightjar.terminal import harmless
from nightjar.warehouse import QueryResult
from nightjar.warehouse.reading.result_values import value_text

MOST_ROWS = 1_000
"""How many rows a terminal is shown, unless it asks for all."""

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
            "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")  # fmt: skip
_WHOLE = (*_NUMBERS, "BOOLEAN", "DATE", "TIME", "TIMESTAMP")
"""What the names of types begin with whose values are not cut: what is left of a number is another number."""

_LONGEST_CELL = 80
_SHORTEST_CUT = 24
"""Shorter, the names of models and the beginnings of messages are no longer told apart: then a row is a block."""

_BLOCK_LINES = 3
"""How many lines a value takes in a block, unless all of it is asked for."""

_MARKED = re.compile("«.*?»")
_GAP = "  "


def print_table(result: QueryResult, stream: TextIO, *, is_full: bool) -> None:
    """Writes rows as a table, or as blocks.

    Args:
        result: the rows.
        stream: where to; what counts is whether it is a terminal, and how wide.
        is_full: whether a terminal too is shown everything.
    """
    if result.columns == ("explain_key", "explain_value"):
        stream.writelines(f"{plan}\n" for _, plan in result.rows)
        return
    console = Console(file=stream)
    is_brief = console.is_terminal and not is_full
    room = console.width if console.is_terminal else sys.maxsize
    rows = result.rows[:MOST_ROWS] if is_brief else result.rows
    cells = [[_cell(value, is_brief) for value in row] for row in rows]
    if widths := _widths(result, cells, room, is_brief):
        _write_grid(result, cells, widths, stream)
    else:
        _write_blocks(result.columns, rows, stream, room, is_full=is_full)
    if len(rows) < len(result.rows):
        stream.flush()
        sys.stderr.write(f"The first {MOST_ROWS:,} of {len(result.rows):,} rows; --full shows all.\n")


def is_number(kind: str) -> bool:
    """Says whether the values of one of DuckDB's types are numbers.

    Example:
        >>> is_number("DECIMAL(18,3)"), is_number("INTEGER[]")
        (True, False)
    """
    return _is_one(kind, _NUMBERS)


def _is_one(kind: str, beginnings: tuple[str, ...]) -> bool:
    return kind.startswith(beginnings) and not kind.endswith("]")


def _widths(result: QueryResult, cells: list[list[str]], room: int, is_brief: bool) -> list[int] | None:
    """How wide the columns of a table are that fits into the room, its texts cut if need be; None when it cannot."""
    widths = [max(map(cell_len, column)) for column in zip(result.columns, *cells, strict=True)]
    for cut in range(_LONGEST_CELL, _SHORTEST_CUT - 1, -1) if is_brief else [sys.maxsize]:
        fitted = [
            width if _is_one(kind, _WHOLE) else min(width, cut)
            for width, kind in zip(widths, result.types, strict=True)
        ]
        if sum(fitted) + len(_GAP) * (len(fitted) - 1) <= room:
            return fitted
    return None


def _write_grid(result: QueryResult, cells: list[list[str]], widths: list[int], stream: TextIO) -> None:
    are_numbers = [is_number(kind) for kind in result.types]
    for row in (result.columns, ["─" * width for width in widths], *cells):
        fitted = (_fit(cell, width, right) for cell, width, right in zip(row, widths, are_numbers, strict=True))
        stream.write(_GAP.join(fitted).rstrip() + "\n")


def _write_blocks(
    names: tuple[str, ...], rows: list[tuple[Any, ...]], stream: TextIO, room: int, *, is_full: bool
) -> None:
    """Writes a row as lines of a name and a value; a long value goes on below itself."""
    margin = max(map(cell_len, names)) + len(_GAP)
    for number, row in enumerate(rows, start=1):
        stream.write(f"── row {number} ".ljust(min(room, _LONGEST_CELL), "─") + "\n")
        for name, value in zip(names, row, strict=True):
            pairs = zip_longest([name], _lines(value, room - margin, is_full), fillvalue="")
            stream.writelines(f"{_fit(label, margin)}{line}".rstrip() + "\n" for label, line in pairs)


def _lines(value: Any, room: int, is_full: bool) -> list[str]:
    """A value over several lines: all of it, or as much as a block has lines for."""
    text = harmless(_text(value)) if is_full else _cell(value, is_brief=True)
    lines = [line.plain for line in Text(text).wrap(Console(), room, tab_size=4)]
    if is_full or len(lines) <= _BLOCK_LINES:
        return lines
    return [*lines[: _BLOCK_LINES - 1], _cut(" ".join(lines[_BLOCK_LINES - 1 :]), room)]


def _cell(value: Any, is_brief: bool) -> str:
    """One line without what a terminal obeys, which a model's text may hold."""
    if is_brief and isinstance(value, float):
        return _rounded(value)
    if is_brief and isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    if is_brief and isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}{'Z' if value.tzinfo else ''}"
    return harmless(" ".join(_text(value).split()))


def _text(value: Any) -> str:
    return "NULL" if value is None else value_text(value)


def _rounded(value: float) -> str:
    """Four places, two from ten on, or three digits of what is smaller than a hundredth."""
    if value and abs(value) < 0.01:  # noqa: PLR2004
        return f"{value:.3g}"
    text = f"{value:.{4 if abs(value) < 10 else 2}f}".rstrip("0")  # noqa: PLR2004
    return f"{text}0" if text.endswith(".") else text


def _fit(cell: str, width: int, right: bool = False) -> str:
    cut = _cut(cell, width)
    padding = " " * (width - cell_len(cut))
    return padding + cut if right else cut + padding


def _cut(line: str, width: int) -> str:
    if cell_len(line) <= width:
        return line
    line = _from_near_mark(line, width)
    return f"{set_cell_size(line, max(0, width - 1)).rstrip()}…" if cell_len(line) > width else line


def _from_near_mark(line: str, width: int) -> str:
    """Leaves out the beginning of a line whose marked words would else be cut off."""
    marked = _MARKED.search(line)
    if marked is None or cell_len(line[: marked.end()]) < width:
        return line
    start = marked.start()
    while start and cell_len(line[start - 1 : marked.start()]) <= (width - cell_len(marked[0])) // 2 - 1:
        start -= 1
    return f"…{line[start:]}"
