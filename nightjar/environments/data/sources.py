"""Reads the rows of datasets from files or the Hugging Face Hub. Rows of the hub are cached on this machine."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import logging
import os
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from tokenize import NL, STRING, TokenError, generate_tokens
from typing import Any

import orjson

from nightjar.core.files import replacing
from nightjar.core.secrecy import error_text
from nightjar.core.syntax import read_literal
from nightjar.errors import DatasetError

logger = logging.getLogger(__name__)

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


def load_hub_dataset(name: str, config: str | None, split: str, data_file: str | None = None) -> list[dict[str, Any]]:
    """Loads a split, or a ``data_file``, from the Hugging Face Hub. Later calls use Nightjar's cache.

    The cache keeps a benchmark unchanged; reading it needs neither a network nor the slow import of ``datasets``. To
    download a split again, delete its file in ``cache_folder()``. Raises ``DatasetError``.

    Example:
        >>> os.environ["NIGHTJAR_CACHE"] = "cache"
        >>> file = Path("cache/datasets/openai--gsm8k/main/test.jsonl")  # what the first call leaves behind
        >>> file.parent.mkdir(parents=True)
        >>> _ = file.write_text('{"question": "6 * 7?", "answer": "6 * 7 = 42 #### 42"}')
        >>> load_hub_dataset("openai/gsm8k", "main", "test")[0]["question"]
        '6 * 7?'
    """
    path = hub_dataset_path(name, config, data_file or split)
    if path.is_file():
        return read_rows(path)
    rows = _load_from_hub(name, config, split, data_file)
    try:
        _keep(path, rows)
    except (OSError, TypeError) as error:
        logger.warning("Cannot store the dataset in %s: %s", path, error)
    return rows


def fetch_hub_dataset(name: str, config: str | None, split: str, data_file: str | None = None) -> Path:
    """Downloads a split into the cache, replacing an existing copy, and returns its path."""
    path = hub_dataset_path(name, config, data_file or split)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):  # found before the download
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))
        _keep(path, _load_from_hub(name, config, split, data_file))
    except (OSError, TypeError) as error:
        where = "free some space, or set NIGHTJAR_CACHE to another folder"
        raise DatasetError(f"Cannot store dataset {name!r} in {str(path)!r}: {error_text(error)}; {where}") from error
    return path


def hub_dataset_path(name: str, config: str | None, split: str) -> Path:
    """Returns the cache file of a split or a ``data_file``, whether it exists or not."""
    parts = [part.strip("/").replace("/", "--") for part in (name, config or "default", split.removesuffix(".jsonl"))]
    folder = cache_folder().joinpath("datasets", *parts[:-1])
    return folder / f"{parts[-1]}.jsonl"


def cache_folder() -> Path:
    """Returns the cache folder: the value of ``NIGHTJAR_CACHE`` if it is set, otherwise ``~/.cache/nightjar``.

    Example:
        >>> os.environ["NIGHTJAR_CACHE"] = "cache"
        >>> str(cache_folder())
        'cache'
    """
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "nightjar"
    return Path(os.environ.get("NIGHTJAR_CACHE", default)).expanduser()


def _load_from_hub(name: str, config: str | None, split: str, data_file: str | None) -> list[dict[str, Any]]:
    import datasets

    what = {"data_files": data_file, "split": "train"} if data_file else {"split": split}
    try:
        rows: list[dict[str, Any]] = datasets.load_dataset(name, config, **what).to_list()
    except Exception as error:
        reason = error_text(error).strip().partition("\n")[0]
        raise DatasetError(
            f"Cannot load dataset {name!r}, split {data_file or split!r}, from the Hugging Face Hub: {reason}"
        ) from error
    return rows


def _keep(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
