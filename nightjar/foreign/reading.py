"""Reads the files of other programs: JSON as Python writes it, ``NaN`` and halves of surrogate pairs included."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from nightjar.errors import WarehouseError

_LARGEST_INTEGER = (1 << 63) - 1
Object = Annotated[dict[str, Any], Field(default_factory=dict)]

_log = logging.getLogger(__name__)


class Lenient(BaseModel):
    """What is read of a JSON object; a field that is missing, or holds what it should not, has its default."""

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _or_default(cls, value: Any, validated: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return validated(value)
        except ValidationError:
            return cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)


def at(*path: str, default: Any = None) -> Any:
    """Declares a field that stands deeper in the object."""
    return Field(default, validation_alias=AliasPath(*path))


class Line(NamedTuple):
    """A line of a file: where it stands, for messages, and what it holds."""

    place: str
    content: dict[str, Any]


def read_object(path: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Raises:
        WarehouseError: it is missing or damaged.
    """
    try:
        return _object(path.read_bytes(), str(path))
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error.strerror}") from error


def read_lines(path: Path) -> Iterator[Line]:
    """Yields the objects of a file of JSON lines, one at a time; empty lines are passed over.

    A last line that a crash tore is left out, with a warning.

    Raises:
        WarehouseError: the file cannot be read, or a line is damaged; file and line are named.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                place = f"{path}, line {number}"
                try:
                    content = _object(line, place) if line.strip() else None
                except WarehouseError:
                    if line.endswith(b"\n"):
                        raise
                    _log.warning("%s is torn and left out.", place)
                    return
                if content is not None:
                    yield Line(place, content)
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error.strerror}") from error


def _object(data: bytes, place: str) -> dict[str, Any]:
    try:
        content = json.loads(data)  # not orjson, which knows neither NaN nor integers of any length
    except (ValueError, RecursionError) as error:
        raise WarehouseError(f"{place} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise WarehouseError(f"{place} is damaged: not a JSON object")
    return content


def measures(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the entries that are finite numbers or truth values, as floats."""
    return {name: float(value) for name, value in values.items() if is_measure(value)}


def is_measure(value: Any) -> bool:
    """Says whether a value is a finite number or a truth value."""
    is_small = isinstance(value, int) and abs(value) <= _LARGEST_INTEGER
    return is_small or (isinstance(value, float) and isfinite(value))


def moment(value: Any) -> datetime | None:
    """Returns the moment, in UTC, of a Unix time or an ISO 8601 text, where no zone means UTC; None for others."""
    try:
        if not isinstance(value, str):
            return datetime.fromtimestamp(value, UTC)
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
