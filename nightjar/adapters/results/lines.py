"""Reads the files of other programs: JSON as Python writes it, ``NaN`` and halves of surrogate pairs included."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nightjar.errors import WarehouseError

_log = logging.getLogger(__name__)


class Row(NamedTuple):
    """A line of a file: where it stands, for messages, and what it holds."""

    place: str
    content: dict[str, Any]


def read_object(path: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Raises:
        WarehouseError: it is missing or damaged.
    """
    try:
        content = _loads(path.read_bytes())
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise WarehouseError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise WarehouseError(f"{path} is damaged: not a JSON object")
    return content


def read_rows(path: Path) -> Iterator[Row]:
    """Yields the objects of a file of JSON lines, one at a time; empty lines are passed over.

    A last line that a crash tore is left out, with a warning.

    Raises:
        WarehouseError: the file cannot be read, or a line is damaged; file and line are named.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if row := _row(line, f"{path}, line {number}"):
                    yield row
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error.strerror}") from error


def _row(line: bytes, place: str) -> Row | None:
    if not line.strip():
        return None
    try:
        content = _loads(line)
    except (ValueError, RecursionError) as error:
        if not line.endswith(b"\n"):
            _log.warning("%s is torn and left out.", place)
            return None
        raise WarehouseError(f"{place} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise WarehouseError(f"{place} is damaged: not a JSON object")
    return Row(place, content)


def _loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)
