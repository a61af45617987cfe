"""The formats that ``nightjar sql`` prints rows in.

Only a table on a terminal cuts cells, rounds numbers and shows the first rows, unless the user asks for everything.
Such a table never cuts off the match of a search, between « and ». It replaces control characters.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from nightjar.core.extras import require_extra
from nightjar.core.files import replacing
from nightjar.core.text import harmless
from nightjar.errors import ConfigError
from nightjar.warehouse import QueryResult
from nightjar.warehouse.reading.result import value_text, write_csv, write_json

if TYPE_CHECKING:
    import pyarrow as pa

_BREAK = re.compile(r"\r\n|\r|\n")


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    PARQUET = "parquet"


PROMPT_FORMATS = [one.value for one in Format if one is not Format.PARQUET]
_SUFFIXES = {
    "": Format.TABLE,
    ".txt": Format.TABLE,
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".md": Format.MARKDOWN,
    ".parquet": Format.PARQUET,
}


def format_of(path: Path | None) -> Format:
    """Returns the format for a file's suffix, a table if there is no suffix; ``BadParameter`` for an unknown suffix."""
    suffix = path.suffix.lower() if path else ""
    if suffix not in _SUFFIXES:
        known = ", ".join(filter(None, _SUFFIXES))
        raise typer.BadParameter(
            f"--output {str(path)!r} has the unknown suffix {suffix!r}. Choose one of: {known}, or give --format"
        )
    return _SUFFIXES[suffix]


def print_rows(rows: QueryResult | pa.Table, chosen: Format, path: Path | None, *, is_full: bool) -> None:
    """Writes rows, or an Arrow table as Parquet, to a file or stdout. A file appears when it is complete."""
    with _opened(path) as stream:
        if not isinstance(rows, QueryResult):
            parquet = require_extra("pyarrow.parquet", "datasets", "--format parquet")
            parquet.write_table(rows, stream.buffer, compression="zstd")
        elif chosen is Format.TABLE:
            print_table(rows, stream, is_full=is_full)
        else:
            write = {Format.CSV: write_csv, Format.JSON: write_json, Format.MARKDOWN: _write_markdown}[chosen]
            written = StringIO() if stream.isatty() else stream
            write(rows, written)
            if isinstance(written, StringIO):
                stream.write(harmless(written.getvalue()))
        stream.flush()


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    is_special = path.exists() and not path.is_file()  # a pipe or a device is written to, not replaced
    try:
        with (
            nullcontext(path) if is_special else replacing(path) as target,
            target.open("w", encoding="utf-8", newline="\n") as file,
        ):
            yield file
    except OSError as error:
        raise ConfigError(f"Cannot write {str(path)!r}: {error.strerror or error}") from error


def _write_markdown(result: QueryResult, stream: TextIO) -> None:
    rules = ["---:" if is_number(kind) else "---" for kind in result.types]
    rows = ([value_text(value) for value in row] for row in result.rows)
    for cells in (result.columns, rules, *rows):
        escaped = (_BREAK.sub("<br>", cell.replace("|", r"\|")) for cell in cells)
        stream.write(f"| {' | '.join(escaped)} |\n")


MOST_ROWS = 1_000

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
            "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")  # fmt: skip
_WHOLE = (*_NUMBERS, "BOOLEAN", "DATE", "TIME", "TIMESTAMP")
"""Prefixes of types whose values are not cut: a cut number is a different number."""

_LONGEST_CELL = 80
_SHORTEST_CUT = 24
"""With shorter cells, models and messages could not be told apart; rows are then printed as blocks."""

_BLOCK_LINES = 3

_MARKED = re.compile("«.*?»")
_GAP = "  "
_TYPES = {int: "BIGINT", float: "DOUBLE", date: "DATE"}


def print_table(result: QueryResult, stream: TextIO, *, is_full: bool) -> None:
    """Writes rows as a table, or as blocks if the terminal is narrow; ``is_full`` shows whole cells and all rows."""
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
    return _is_one(kind, _NUMBERS)


def _is_one(kind: str, beginnings: tuple[str, ...]) -> bool:
    return kind.startswith(beginnings) and not kind.endswith("]")


def _widths(result: QueryResult, cells: list[list[str]], room: int, is_brief: bool) -> list[int] | None:
    """Returns the widths of columns that fit, with cells cut if necessary; None if they do not fit."""
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
    margin = max(map(cell_len, names)) + len(_GAP)
    for number, row in enumerate(rows, start=1):
        stream.write(f"── row {number} ".ljust(min(room, _LONGEST_CELL), "─") + "\n")
        for name, value in zip(names, row, strict=True):
            pairs = zip_longest([name], _lines(value, room - margin, is_full), fillvalue="")
            stream.writelines(f"{_fit(label, margin)}{line}".rstrip() + "\n" for label, line in pairs)


def _lines(value: Any, room: int, is_full: bool) -> list[str]:
    text = harmless(_text(value)) if is_full else _cell(value, is_brief=True)
    lines = [line.plain for line in Text(text).wrap(Console(), room, tab_size=4)]
    if is_full or len(lines) <= _BLOCK_LINES:
        return lines
    return [*lines[: _BLOCK_LINES - 1], _cut(" ".join(lines[_BLOCK_LINES - 1 :]), room)]


def _cell(value: Any, is_brief: bool) -> str:
    return harmless(" ".join(_text(_brief(value) if is_brief else value).split()))


def _brief(value: Any) -> Any:
    if isinstance(value, float | Decimal):
        return _rounded(value)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}{'Z' if value.tzinfo else ''}"
    return _rounded_inside(value)


def _rounded_inside(value: Any) -> Any:
    if isinstance(value, float):
        return float(_rounded(value))
    if isinstance(value, list):
        return [_rounded_inside(item) for item in value]
    return {key: _rounded_inside(item) for key, item in value.items()} if isinstance(value, dict) else value


def _text(value: Any) -> str:
    return "NULL" if value is None else value_text(value)


def _rounded(value: float | Decimal) -> str:
    """Rounds to four decimal places; numbers from 10 on to two; numbers below 0.01 to three significant digits."""
    if isinstance(value, Decimal) and value == round(value, 4):
        return str(value)
    size = abs(float(value))
    if size and size < 0.01:  # noqa: PLR2004
        return f"{value:.3g}"
    text = f"{value:.{4 if size < 10 else 2}f}".rstrip("0")  # noqa: PLR2004
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
    """Cuts the beginning of a line whose marked words would otherwise be cut off."""
    marked = _MARKED.search(line)
    if marked is None or cell_len(line[: marked.end()]) < width:
        return line
    start = marked.start()
    while start and cell_len(line[start - 1 : marked.start()]) <= (width - cell_len(marked[0])) // 2 - 1:
        start -= 1
    return f"…{line[start:]}"


def print_records(records: Sequence[Mapping[str, Any]]) -> None:
    types = (_TYPES.get(type(value), "VARCHAR") for value in records[0].values())
    rows = [tuple(record.values()) for record in records]
    print_table(QueryResult((*records[0],), (*types,), rows), sys.stdout, is_full=False)
