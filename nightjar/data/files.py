"""Rows of a file: JSON lines, or a table with a header; also compressed with gzip.

``read_rows("test.jsonl.gz")``, ``read_rows("prompts.csv")``, ``read_rows("pairs.tsv")``.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from pathlib import Path
from typing import Any

import orjson

from nightjar.errors import DatasetError

TABLES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
"""Ending of a table's name to what is between its columns; any other file is one of JSON lines."""
_LONGEST_FIELD = 2**31 - 1


def read_rows(
    path: str | Path, required: tuple[str, ...] = (), columns: tuple[str, ...] | None = None
) -> list[dict[str, Any]]:
    r"""Reads a file; which kind it is, its name says.

    Args:
        path: the file, ``~`` is the home; one whose name ends in ``.gz`` is uncompressed first.
        required: columns that every row must have.
        columns: of a table without a header.

    Raises:
        DatasetError: the file is missing, empty or broken; file and line are named.

    Example:
        >>> _ = Path("sums.csv").write_text("question,answer\nWhat is 2+2?,4\n")
        >>> read_rows("sums.csv", required=("question", "answer"))
        [{'question': 'What is 2+2?', 'answer': '4'}]
    """
    content, suffix = _content(Path(path).expanduser())
    delimiter = TABLES.get(suffix)
    rows = _lines(content, path) if delimiter is None else _table(content, path, delimiter, columns)
    if not rows:
        raise DatasetError(f"Dataset {str(path)!r} is empty")
    for place, row in rows:
        missing = [column for column in required if column not in row]
        if missing:
            raise DatasetError(f"{place}: no {' and no '.join(map(repr, missing))}; found {sorted(row)}")
    return [row for _, row in rows]


def _content(path: Path) -> tuple[bytes, str]:
    """Returns what is in a file, and the ending that says of what kind it is."""
    is_compressed = path.suffix.lower() == ".gz"
    try:
        content = gzip.decompress(path.read_bytes()) if is_compressed else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"Cannot read dataset {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    return content, (path.with_suffix("") if is_compressed else path).suffix.lower()


def _lines(content: bytes, path: str | Path) -> list[tuple[str, dict[str, Any]]]:
    numbered = enumerate(content.split(b"\n"), start=1)
    return [(place := f"{path}, line {number}", _object(line, place)) for number, line in numbered if line.strip()]


def _object(line: bytes, place: str) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DatasetError(f"{place}: not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise DatasetError(f"{place}: expected a JSON object, found {type(row).__name__}")
    return row


def _table(
    content: bytes, path: str | Path, delimiter: str, columns: tuple[str, ...] | None
) -> list[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(_LONGEST_FIELD)  # images are fields, too
    try:
        file = io.StringIO(content.decode("utf-8-sig"), newline="")
        rows = list(csv.DictReader(file, columns, delimiter=delimiter, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"Cannot read dataset {str(path)!r}: {error}") from error
    placed = [(f"{path}, row {number}", row) for number, row in enumerate(rows, start=1)]
    for place, row in placed:
        if None in row or None in row.values():
            raise DatasetError(f"{place}: it has more or fewer fields than the header")
    return placed
