"""The formats that ``nightjar sql`` prints rows in: CSV, JSON, Markdown and Parquet; tables are in ``sql_table``.

Values are whole and exact everywhere but in a table on a terminal. What a terminal would obey instead of show is
replaced there: a completion is a model's text.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

from nightjar.cli.sql.format import Format
from nightjar.cli.sql.table import NUMBERS, harmless, print_table
from nightjar.errors import ConfigError
from nightjar.warehouse.reading.result_values import as_records, value_text

if TYPE_CHECKING:
    import pyarrow as pa

    from nightjar.warehouse import QueryResult

_BREAK = re.compile(r"\r\n|\r|\n")


def print_rows(result: QueryResult, chosen: Format, stream: TextIO, *, is_full: bool) -> None:
    """Writes rows as text.

    Args:
        result: the rows.
        chosen: any format but Parquet, which is no text.
        stream: where to.
        is_full: whether a table on a terminal shows all of every cell and all rows.
    """
    if chosen is Format.TABLE:
        print_table(result, stream, is_full=is_full)
        return
    show = harmless if stream.isatty() else str
    lines = {Format.CSV: _csv_lines, Format.JSON: _json_lines, Format.MARKDOWN: _markdown_lines}[chosen](result)
    stream.writelines(show(line) for line in lines)


def print_parquet(table: pa.Table, stream: IO[bytes]) -> None:
    """Writes an Arrow table as a Parquet file."""
    from pyarrow import parquet

    parquet.write_table(table, stream, compression="zstd")


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file that appears, or replaces the one there, when all of it is written.

    Raises:
        ConfigError: the file cannot be written.
    """
    is_special = path.exists() and not path.is_file()  # a pipe or a device is written to, not replaced
    partial = path if is_special else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"Cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        if not is_special:
            partial.unlink(missing_ok=True)


def _csv_lines(result: QueryResult) -> Iterator[str]:
    line = _Line()
    writer = csv.writer(line, lineterminator="\n")
    for row in (result.columns, *result.rows):
        writer.writerow([value_text(value) for value in row])
        yield line.text


class _Line:
    """The file of a CSV writer; holds the last line."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def _json_lines(result: QueryResult) -> Iterator[str]:
    yield json.dumps(as_records(result), indent=2, ensure_ascii=False, default=value_text) + "\n"


def _markdown_lines(result: QueryResult) -> Iterator[str]:
    rules = ["---:" if kind.startswith(NUMBERS) else "---" for kind in result.types]
    rows = ([value_text(value) for value in row] for row in result.rows)
    for cells in (result.columns, rules, *rows):
        escaped = (_BREAK.sub("<br>", cell.replace("|", r"\|")) for cell in cells)
        yield f"| {' | '.join(escaped)} |\n"
