"""Rows as a table for the eyes, or as one block a row where the terminal is too narrow for that.

On a terminal long cells are cut, numbers are rounded and only the first rows are shown, unless all is asked for. What
stands between « and » in a cell is not cut off: it is what a search was for. In a pipe or a file everything is there,
one line a row.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from nightjar.warehouse.reading.result_values import value_text

if TYPE_CHECKING:
    from nightjar.warehouse import QueryResult

NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
           "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")  # fmt: skip
"""What the names of numeric types begin with."""

MOST_ROWS = 1_000
"""How many rows a terminal is shown, unless it asks for all."""

_LONGEST_CELL = 80
_SHORTEST_CUT = 24
"""Shorter, the names of models and the beginnings of messages are no longer told apart: then a row is a block."""

_BLOCK_LINES = 3
"""How many lines a value takes in a block, unless all of it is asked for."""

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but tab and line feed, and those that turn the direction of writing."""

_MARKED = re.compile("«.*?»")
_GAP = "  "
_NARROW = (*NUMBERS, "BOOLEAN", "DATE", "TIME", "TIMESTAMP")
"""Types whose values are not cut: what is left of a number is another number."""


def print_table(result: QueryResult, stream: TextIO, *, is_full: bool) -> None:
    """Writes rows as a table, or as blocks.

    Args:
        result: the rows.
        stream: where to; what counts is whether it is a terminal, and how wide.
        is_full: whether a terminal too is shown everything.
    """
    console = Console(file=stream)
    is_brief = console.is_terminal and not is_full
    if result.columns == ("explain_key", "explain_value"):
        stream.writelines(f"{plan}\n" for _, plan in result.rows)
        return
    rows = result.rows[:MOST_ROWS] if is_brief else result.rows
    cells = [[_cell(value, is_brief) for value in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(result.columns, *cells, strict=True)]
    cut = _widest_cut(widths, result.types, console.width, is_brief) if console.is_terminal else sys.maxsize
    if cut is None:
        _write_blocks(result.columns, rows, stream, console.width, is_full=is_full)
    else:
        limits = [
            width if _is_narrow(kind) else min(width, cut) for width, kind in zip(widths, result.types, strict=True)
        ]
        _write_grid(result, cells, limits, stream)
    if len(rows) < len(result.rows):
        stream.flush()
        sys.stderr.write(f"The first {MOST_ROWS:,} of {len(result.rows):,} rows; --full shows all.\n")


def harmless(text: str) -> str:
    r"""Returns a text with ``?`` for what a terminal obeys; line feeds and tabs stay.

    Example:
        >>> harmless("a\x1b[31mb")
        'a?[31mb'
    """
    return _OBEYED.sub("?", text)


def _widest_cut(widths: list[int], types: tuple[str, ...], room: int, is_brief: bool) -> int | None:
    """The length to cut texts to so that a table fits into the room; None when it cannot."""
    cuts = range(_LONGEST_CELL, _SHORTEST_CUT - 1, -1) if is_brief else [sys.maxsize]
    gaps = len(_GAP) * (len(widths) - 1)
    for cut in cuts:
        limits = (width if _is_narrow(kind) else min(width, cut) for width, kind in zip(widths, types, strict=True))
        if sum(limits) + gaps <= room:
            return cut
    return None


def _write_grid(result: QueryResult, cells: list[list[str]], limits: list[int], stream: TextIO) -> None:
    is_number = [kind.startswith(NUMBERS) and not kind.endswith("]") for kind in result.types]
    rule = ["─" * limit for limit in limits]
    for row in (result.columns, rule, *cells):
        fitted = (_fit(cell, limit, right) for cell, limit, right in zip(row, limits, is_number, strict=True))
        stream.write(_GAP.join(fitted).rstrip() + "\n")


def _write_blocks(
    names: tuple[str, ...], rows: list[tuple[Any, ...]], stream: TextIO, room: int, *, is_full: bool
) -> None:
    """Writes a row as lines of a name and a value; a long value goes on below itself."""
    margin = max(map(_width, names)) + len(_GAP)
    for number, row in enumerate(rows, start=1):
        stream.write(f"── row {number} ".ljust(min(room, _LONGEST_CELL), "─") + "\n")
        for name, value in zip(names, row, strict=True):
            lines = _wrapped(value, room - margin) if is_full else _beginning(value, room - margin)
            labels = [name, *[""] * (len(lines) - 1)]
            pairs = zip(labels, lines, strict=True)
            stream.writelines(f"{_fit(label, margin)}{line}".rstrip() + "\n" for label, line in pairs)


def _beginning(value: Any, room: int) -> list[str]:
    """As much of a value as a block has lines for."""
    lines = _folded(_cell(value, is_brief=True), room)
    if len(lines) <= _BLOCK_LINES:
        return lines
    last = " ".join(lines[_BLOCK_LINES - 1 :])
    return [*lines[: _BLOCK_LINES - 1], _cut(last, room)]


def _wrapped(value: Any, room: int) -> list[str]:
    lines = harmless(_text(value)).expandtabs(4).split("\n")
    return [piece for line in lines for piece in _folded(line, room)]


def _folded(line: str, room: int) -> list[str]:
    return [piece.plain for piece in Text(line).wrap(Console(), room)] or [""]


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


def _is_narrow(kind: str) -> bool:
    return kind.startswith(_NARROW) and not kind.endswith("]")


def _fit(cell: str, width: int, right: bool = False) -> str:
    cut = _cut(cell, width)
    padding = " " * (width - _width(cut))
    return padding + cut if right else cut + padding


def _cut(line: str, width: int) -> str:
    if _width(line) <= width:
        return line
    line = _from_near_mark(line, width)
    return f"{set_cell_size(line, max(0, width - 1)).rstrip()}…" if _width(line) > width else line


def _from_near_mark(line: str, width: int) -> str:
    """Leaves out the beginning of a line whose marked words would else be cut off."""
    marked = _MARKED.search(line)
    if marked is None or _width(line[: marked.end()]) < width:
        return line
    start = marked.start()
    while start and _width(line[start - 1 : marked.start()]) <= (width - _width(marked[0])) // 2 - 1:
        start -= 1
    return f"…{line[start:]}"


def _width(line: str) -> int:
    return cell_len(line)
