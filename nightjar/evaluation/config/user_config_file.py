"""Changes single settings in the user's defaults; the rest of the file keeps its format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args, get_origin

import tomlkit

from nightjar.core.files import file_lock, replace_file
from nightjar.core.home import config_path, home
from nightjar.errors import ConfigError
from nightjar.evaluation.config.parameters import plain_type
from nightjar.evaluation.config.user_config import checked, field_of, read_checked


def set_setting(key: str, text: str) -> Any:
    """Parses and sets a value, and returns the validated value."""
    value = _parsed(key, text)
    with _document() as document:
        *places, name = key.split(".")
        table: Any = document
        for place in places:
            table = table.setdefault(place, tomlkit.table())
        table[name] = value
        found: Any = checked(document.unwrap()).model_dump(mode="json")
        for place in key.split("."):
            found = found[place]
        table[name] = found
    return found


def unset_setting(key: str) -> bool:
    """Removes a value; returns whether there was one."""
    field_of(key)
    with _document() as document:
        return _remove(document, key.split("."))


def _parsed(key: str, text: str) -> Any:
    """Parses a typed value: JSON for lists and tables, and for values inside a table if it is JSON."""
    field, is_below = field_of(key)
    kind = plain_type(field)
    if get_origin(kind) not in {dict, list} or (is_below and get_args(kind)[1] is str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        if is_below:
            return text
        raise ConfigError(f"{key}: expected JSON, such as {'[]' if get_origin(kind) is list else '{}'}") from None


@contextmanager
def _document() -> Iterator[tomlkit.TOMLDocument]:
    """Yields the file for changes, under a lock, and writes it at the end."""
    home()
    path = config_path()
    with file_lock(path.with_suffix(".lock")):
        read_checked()
        document = tomlkit.parse(path.read_text("utf-8") if path.exists() else "")
        yield document
        replace_file(path, [tomlkit.dumps(document).encode()], mode=0o600)


def _remove(table: Any, keys: list[str]) -> bool:
    first, *rest = keys
    if first not in table:
        return False
    was_set = _remove(table[first], rest) if rest else True
    if not rest or not table[first]:
        del table[first]
    return was_set
