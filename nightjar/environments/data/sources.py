"""Reads the rows of datasets from files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from tokenize import NL, STRING, TokenError, generate_tokens
from typing import Any

import orjson

from nightjar.core.syntax import read_literal
from nightjar.errors import DatasetError

TABLES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
"""Delimiters of tables by file suffix. A file with any other suffix holds JSON lines."""
_LONGEST_FIELD = 2**31 - 1
_EXPECTED: Mapping[type, str] = {
    list: 'a list, or a text that holds a list, such as ["3", "4"]',
    dict: 'a mapping, or a text that holds a mapping, such as {"a": 1}',
}
_LONGEST = 80


def read_rows(
    path: str | Path, required: tuple[str, ...] = (), columns: tuple[str, ...] | None = None
) -> list[dict[str, Any]]:
    r"""Reads a file of JSON lines or a table, and decompresses it if its name ends in ``.gz``.

    Every row must have the ``required`` columns. ``columns`` gives the column names of a table without a header. Raises
    ``DatasetError``.

    Example:
        >>> _ = Path("sums.csv").write_text("question,answer\nWhat is 2+2?,4\n")
        >>> read_rows("sums.csv", required=("question", "answer"))
        [{'question': 'What is 2+2?', 'answer': '4'}]
    """
    file = Path(path).expanduser()
    is_compressed = file.suffix.lower() == ".gz"
    try:
        content = gzip.decompress(file.read_bytes()) if is_compressed else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"Cannot read dataset {str(file)!r}: {getattr(error, 'strerror', None) or error}") from error
    delimiter = TABLES.get((file.with_suffix("") if is_compressed else file).suffix.lower())
    rows = _lines(content, path) if delimiter is None else _table(content, path, delimiter, columns)
    if not rows:
        raise DatasetError(f"Dataset {str(path)!r} is empty")
    for place, row in rows:
        missing = [column for column in required if column not in row]
        if missing:
            raise DatasetError(f"{place}: no {' and no '.join(map(repr, missing))}; found {sorted(row)}")
    return [row for _, row in rows]


def _lines(content: bytes, path: str | Path) -> list[tuple[str, dict[str, Any]]]:
    placed = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise DatasetError(f"{place}: not valid JSON: {error}") from error
        if not isinstance(row, dict):
            raise DatasetError(f"{place}: expected a JSON object, found {type(row).__name__}")
        placed.append((place, row))
    return placed


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


def read_nested(row: dict[str, Any], kinds: Mapping[str, type], place: str) -> dict[str, Any]:
    """Parses the columns in ``kinds``, whose text holds a value of the given type; leaves empty values unchanged."""
    found = {column: _read(row[column]) for column in kinds if row.get(column) not in (None, "")}
    for column, value in found.items():
        if not isinstance(value, kinds[column]):
            said = repr(row[column])[:_LONGEST]
            raise DatasetError(f"{place}: {column!r} must be {_EXPECTED[kinds[column]]}; found {said}")
    return {**row, **found}


def _read(value: Any) -> Any:
    """Parses a text as JSON, Python, or a NumPy list of texts; otherwise returns the text itself."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        return read_literal(_with_commas(value))
    except (ValueError, SyntaxError, TokenError, RecursionError, MemoryError):
        return value


def _with_commas(text: str) -> str:
    """Adds commas to a list printed by NumPy, such as ``['3' '4']``, which Python would read as a single text."""
    tokens = [token for token in generate_tokens(io.StringIO(text.strip()).readline) if token.type != NL]
    return " ".join(
        token.string + "," * (token.type == following.type == STRING) for token, following in pairwise(tokens)
    )
