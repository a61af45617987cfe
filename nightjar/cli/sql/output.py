"""The formats that ``nightjar sql`` prints rows in; what a table looks like is in ``table``.

Values are whole and exact everywhere but in a table on a terminal. What a terminal would obey instead of show is
replaced there: a completion is a model's text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from nightjar.cli.sql.table import is_number, print_table
from nightjar.errors import ConfigError
from nightjar.terminal import harmless
from nightjar.warehouse import QueryResult
from nightjar.warehouse.reading.result_values import value_text, write_csv, write_json

if TYPE_CHECKING:
    import pyarrow as pa

_BREAK = re.compile(r"\r\n|\r|\n")


class Format(StrEnum):
    """How rows are printed."""

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
    """Returns the format that the suffix of a file stands for; a table without a suffix or a file.

    Raises:
        typer.BadParameter: it stands for none.

    Example:
        >>> format_of(Path("best.csv")).value, format_of(None).value
        ('csv', 'table')
    """
    suffix = path.suffix.lower() if path else ""
    if suffix not in _SUFFIXES:
        known = ", ".join(filter(None, _SUFFIXES))
        raise typer.BadParameter(
            f"--output {str(path)!r} ends in {suffix!r}, which stands for no format. Choose one of: {known}, or say "
            "which with --format"
        )
    return _SUFFIXES[suffix]


def print_rows(rows: QueryResult | pa.Table, chosen: Format, path: Path | None, *, is_full: bool) -> None:
    """Writes rows.

    Args:
        rows: an Arrow table for Parquet, a result for any other format.
        chosen: the format.
        path: where to; None for stdout. A file appears, or replaces the one there, when all of it is written.
        is_full: whether a table on a terminal shows all of every cell and all rows.

    Raises:
        ConfigError: the file cannot be written.
    """
    with _opened(path) as stream:
        if not isinstance(rows, QueryResult):
            from pyarrow import parquet

            parquet.write_table(rows, stream.buffer, compression="zstd")
        elif chosen is Format.TABLE:
            print_table(rows, stream, is_full=is_full)
        else:
            write = {Format.CSV: write_csv, Format.JSON: write_json, Format.MARKDOWN: _write_markdown}[chosen]
            write(rows, _Screen(stream) if stream.isatty() else stream)
        stream.flush()


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    is_special = path.exists() and not path.is_file()  # a pipe or a device is written to, not replaced
    partial = path if is_special else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"Cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        if not is_special:
            with suppress(OSError):
                partial.unlink(missing_ok=True)


class _Screen:
    """A terminal, which is written nothing that it would obey."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(harmless(text))


def _write_markdown(result: QueryResult, stream: TextIO | _Screen) -> None:
    rules = ["---:" if is_number(kind) else "---" for kind in result.types]
    rows = ([value_text(value) for value in row] for row in result.rows)
    for cells in (result.columns, rules, *rows):
        escaped = (_BREAK.sub("<br>", cell.replace("|", r"\|")) for cell in cells)
        stream.write(f"| {' | '.join(escaped)} |\n")
