"""Reads the files of other programs: Python's JSON, with lenient fields, and settings without secrets."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from nightjar.core.secret_signs import credential_of, is_secret_name, looks_secret
from nightjar.errors import WarehouseError

MOST_UNREADABLE = 100
"""The damaged rows that the metadata of an imported run name."""
_LARGEST_INTEGER = (1 << 63) - 1
Object = Annotated[dict[str, Any], Field(default_factory=dict)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
_log = logging.getLogger(__name__)
_NEXT_URL = r"(?!,\w+://)"
_URL = re.compile(rf"(\w+://)(?:[^/\s]*@)?((?:{_NEXT_URL}[^?#\s])*)(?:{_NEXT_URL}\S)*")


class Lenient(BaseModel):
    """A JSON object; missing and invalid fields have their defaults."""

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _or_default(cls, value: Any, validated: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return validated(value)
        except ValidationError:
            return cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)


def at(*path: str, default: Any = None) -> Any:
    return Field(default, validation_alias=AliasPath(*path))


class Line(NamedTuple):
    place: str
    content: dict[str, Any]


def read_object(path: Path) -> dict[str, Any]:
    """Reads a file with one JSON object; raises WarehouseError if it is missing or damaged."""
    try:
        return parse_object(path.read_bytes(), str(path))
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error.strerror}") from error


def read_lines(path: Path) -> Iterator[Line]:
    """Yields the objects of a file of JSON lines; skips empty lines and, with a warning, a torn last line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                place = f"{path}, line {number}"
                try:
                    content = parse_object(line, place) if line.strip() else None
                except WarehouseError:
                    if line.endswith(b"\n"):
                        raise
                    _log.warning("%s is torn and left out.", place)
                    return
                if content is not None:
                    yield Line(place, content)
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error.strerror}") from error


def readable_lines(path: Path, unreadable: list[str]) -> Iterator[Line]:
    """Yields the objects of a file of JSON lines; adds the place and the damage of other lines to ``unreadable``."""
    return (line for line in lines_with_gaps(path, unreadable) if line)


def lines_with_gaps(path: Path, unreadable: list[str]) -> Iterator[Line | None]:
    """Yields the objects of a file of JSON lines like ``readable_lines``, and None for each damaged line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _line(line, f"{path}, line {number}", unreadable)
    except OSError as error:
        raise WarehouseError(f"Cannot read {path}: {error.strerror}") from error


def _line(data: bytes, place: str, unreadable: list[str]) -> Line | None:
    try:
        return Line(place, parse_object(data, place))
    except WarehouseError as error:
        unreadable.append(str(error))
        return None


def told_unreadable(unreadable: Sequence[str]) -> dict[str, Any]:
    """Returns the entry of ``original`` that names the damaged rows; nothing if all rows were read."""
    return {"unreadable": list(unreadable[:MOST_UNREADABLE])} if unreadable else {}


def parse_object(data: bytes, place: str) -> dict[str, Any]:
    """Parses one JSON object; raises WarehouseError, which starts with the place, if it is damaged."""
    try:
        content = json.loads(data)  # not orjson, which knows neither NaN nor integers of any length
    except (ValueError, RecursionError) as error:
        raise WarehouseError(f"{place} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise WarehouseError(f"{place} is damaged: not a JSON object")
    return content


def check_reward(line: Line) -> None:
    """Raises WarehouseError if the reward of a row is neither a number nor null."""
    reward = line.content.get("reward")
    if not isinstance(reward, int | float | None):
        raise WarehouseError(f"{line.place} is not a rollout: its reward is not a number")


def as_object(value: Any) -> dict[str, Any]:
    """Returns a JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def measures(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if is_measure(value)}


def is_measure(value: Any) -> bool:
    is_small = isinstance(value, int) and abs(value) <= _LARGEST_INTEGER
    return is_small or (isinstance(value, float) and isfinite(value))


def moment(value: Any) -> datetime | None:
    """Returns a Unix time or an ISO 8601 text, by default in UTC, as a time in UTC; None for anything else."""
    try:
        if not isinstance(value, str):
            return datetime.fromtimestamp(value, UTC)
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def without_secrets(value: Any) -> Any:
    """Returns settings without secrets: keys, tokens, passwords, headers, credentials in URLs."""
    if isinstance(value, Mapping):
        return {
            name: without_secrets(item)
            for name, item in value.items()
            if not (is_secret_name(name) or "headers" in name.lower() or _is_secret(item))
        }
    if isinstance(value, list):
        return [without_secrets(item) for item in value if not _is_secret(item)]
    return public_url(value) if isinstance(value, str) else value


def public_url(text: str) -> str:
    """Returns a text whose URLs have no user, password or query."""
    return _URL.sub(r"\1\2", text)


def _is_secret(value: Any) -> bool:
    return isinstance(value, str) and (looks_secret(value) or credential_of(value) is not None)
