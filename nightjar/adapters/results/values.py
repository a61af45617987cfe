"""Reads the files of other programs: JSON as Python writes it, ``NaN`` and halves of surrogate pairs included.

Of a field it says what it holds, or None where that is something else than it should be.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nightjar.errors import ConfigError, WarehouseError
from nightjar.messages import dump_messages, normalize_messages

_LARGEST_INTEGER = 1 << 63

_log = logging.getLogger(__name__)


def number(value: Any) -> float | None:
    """Returns a finite number; True and False are 1 and 0."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int):
        return integer(value)
    return value if isinstance(value, float) and isfinite(value) else None


def integer(value: Any) -> int | None:
    """Returns an integer that a database column holds."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return value if is_integer and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER else None


def boolean(value: Any) -> bool | None:
    """Returns a truth value."""
    return value if isinstance(value, bool) else None


def text(value: Any) -> str | None:
    """Returns a text that is not empty."""
    return value if isinstance(value, str) and value else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Returns an object; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def measures(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the entries that are finite numbers or truth values, as floats."""
    found = {name: number(value) for name, value in values.items()}
    return {name: float(value) for name, value in found.items() if value is not None}


def milliseconds(seconds: float | None) -> float | None:
    """Returns seconds as milliseconds."""
    return None if seconds is None else round(seconds * 1000, 3)


def iso_time(moment: float | None) -> str | None:
    """Returns a Unix time in seconds as ISO 8601, UTC; None for one that no calendar has."""
    try:
        return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def unix_time(value: Any) -> float | None:
    """Returns the Unix time of an ISO 8601 text, which is taken as UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def messages(value: Any) -> Any:
    """Returns messages as Nightjar writes them; what is no message stays as it is.

    Tool calls may be texts of JSON, as ``verifiers`` saves them, or nested, as OpenAI nests them.

    Example:
        >>> call = '{"id": "call-1", "name": "add", "arguments": "{}"}'
        >>> messages([{"role": "assistant", "content": "", "tool_calls": [call]}])[0]["tool_calls"]
        [{'id': 'call-1', 'name': 'add', 'arguments': '{}'}]
    """
    if not isinstance(value, str | list):
        return None
    try:
        return dump_messages(
            normalize_messages(value if isinstance(value, str) else [_message(item) for item in value])
        )
    except ConfigError:
        return value


def _message(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        return value | {"tool_calls": [_tool_call(call) for call in value["tool_calls"]]}
    return value


def _tool_call(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


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
