"""Composes a config from several files, its own values, environment variables and overrides.

``defaults:`` lists files, which are looked up in ``conf`` beside the config, then beside the config itself. The content
of ``group/name`` is put below the key ``group``, and the content of ``name`` at the top. ``_base_: file`` is another
config. ``_self_`` is the place of the config itself, by default the last place. Later files override earlier files,
mapping by mapping; null removes a value. ``${.path.to}`` is replaced by another value of the config. Top-level keys
that begin with ``_`` are only used for such values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nightjar.core.secret_signs import is_secret_variable
from nightjar.core.yaml_files import read_yaml
from nightjar.errors import ConfigError

_GROUPS = {"clusters": "cluster"}
_OWN = re.compile(r"\$\{\.([\w.]+)\}")
_VARIABLE = re.compile(r"(\$?)\$\{(\w+)(?::-(.*?))?\}")
_KEPT_AS_NAMES = frozenset({"api_key", "extra_headers"})
_CONSTANTS: dict[str, Any] = {"null": None, "none": None, "true": True, "false": False}


def compose_config(config_path: str | Path) -> dict[str, Any]:
    """Returns the content of a config and its files. Environment variables are not replaced by their values."""
    path = Path(config_path)
    whole = _composed(path, path.parent, ())
    if not whole:
        raise ConfigError(
            f"{path} is empty. A config has services, and benchmarks that use them (docs/coming-from/nemo-configs.md)"
        )
    found = _with_own_values(whole, whole, path)
    return {key: value for key, value in found.items() if not str(key).startswith("_")}


def _composed(path: Path, folder: Path, within: tuple[Path, ...]) -> dict[str, Any]:
    own = _mapping(path)
    if path.resolve() in within:
        raise ConfigError(f"{path}: the file includes itself, in defaults")
    if "_base_" in own:
        raise ConfigError(f"{path}: _base_ belongs in defaults: write defaults: [{{_base_: {own['_base_']}}}, _self_]")
    if "defaults" not in own:
        return own
    entries = own.pop("defaults")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: defaults: expected a list, found {type(entries).__name__}")
    entries = entries if "_self_" in entries else [*entries, "_self_"]
    result: dict[str, Any] = {}
    for entry in entries:
        part = own if entry == "_self_" else _part(entry, path, folder, (*within, path.resolve()))
        result = _merged(result, part)
    return _without_nulls(result)


def _part(entry: Any, path: Path, folder: Path, within: tuple[Path, ...]) -> dict[str, Any]:
    if isinstance(entry, Mapping) and entry.keys() == {"_base_"}:
        return _composed(_found(str(entry["_base_"]), path, path.parent, folder), folder, within)
    if not isinstance(entry, str):
        raise ConfigError(
            f"{path}: defaults: expected 'group/name', 'name', '_self_' or '_base_: file', found {entry!r}"
        )
    group, slash, _ = entry.partition("/")
    found = _found(entry, path, folder)
    if found.resolve() in within:
        raise ConfigError(f"{path}: the file includes itself, with {entry!r} in defaults")
    content = _mapping(found)
    if "defaults" in content:
        raise ConfigError(f"{path}: {entry!r} has its own defaults: include it with {{_base_: {entry}}}")
    return {_GROUPS.get(group, group): content} if slash else content


def _found(name: str, path: Path, *folders: Path) -> Path:
    places = [place / f"{name}{ending}" for folder in folders for place in (folder / "conf", folder)
              for ending in ("", ".yaml", ".yml")]  # fmt: skip
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ConfigError(f"{path}: there is no file {name!r} in {folders[0] / 'conf'} or {folders[0]}")
    return found


def _mapping(path: Path) -> dict[str, Any]:
    content = read_yaml(path)
    if content is not None and not isinstance(content, dict):
        raise ConfigError(f"{path}: expected keys and values, found {type(content).__name__}")
    return content or {}


def _merged(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(earlier[key], value)
        for key, value in later.items()
        if isinstance(value, dict) and isinstance(earlier.get(key), dict)
    }
    return {**earlier, **later, **both}


def _without_nulls(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in content.items()
        if value is not None
    }


def _with_own_values(value: Any, whole: Mapping[str, Any], path: Path) -> Any:
    if isinstance(value, dict):
        return {key: _with_own_values(each, whole, path) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_own_values(each, whole, path) for each in value]
    if not isinstance(value, str):
        return value
    if whole_text := _OWN.fullmatch(value):
        return _at(whole, whole_text[1], path)
    return _OWN.sub(lambda found: str(_at(whole, found[1], path)), value)


def _at(whole: Any, place: str, path: Path) -> Any:
    for key in place.split("."):
        if not isinstance(whole, Mapping) or key not in whole:
            raise ConfigError(f"{path}: ${{.{place}}} leads nowhere")
        whole = whole[key]
    return whole


def overridden(raw: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Applies overrides of the form ``key.of.value=value``. A number in the key is a position in a list."""
    result = dict(raw)
    for text in overrides:
        place, equals, value = text.partition("=")
        if not (equals and all(place.split("."))):
            raise ConfigError(f"--override: expected key=value, such as services.model.url=…, found {place!r}")
        result = _set(result, place.split("."), _coerced(value), place)
    return result


def _set(within: Any, keys: list[str], value: Any, place: str) -> Any:
    if not keys:
        return value
    key, *rest = keys
    if isinstance(within, list):
        if not (key.isdecimal() and int(key) < len(within)):
            raise ConfigError(
                f"--override {place}: {key!r} is not a position in this list of {len(within)}, counted from 0"
            )
        return [_set(each, rest, value, place) if n == int(key) else each for n, each in enumerate(within)]
    if not isinstance(within, Mapping | None):
        raise ConfigError(f"--override {place}: there is nothing below {within!r}")
    return {**(within or {}), key: _set((within or {}).get(key), rest, value, place)}


def _coerced(text: str) -> Any:
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def expanded(value: Any, place: str = "") -> Any:
    """Replaces ``${NAME}`` and ``${NAME:-default}`` by values, except in keys and headers; ``$${…}`` stays literal."""
    if isinstance(value, Mapping):
        return {
            key: each
            if key in _KEPT_AS_NAMES and place.startswith("services.")
            else expanded(each, f"{place}.{key}".lstrip("."))
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [expanded(each, f"{place}.{number}") for number, each in enumerate(value)]
    return _VARIABLE.sub(lambda found: _value(found, place), value) if isinstance(value, str) else value


def _value(found: re.Match[str], place: str) -> str:
    escaped, name, default = found.groups()
    if escaped:
        return found[0][1:]
    if is_secret_variable(name):
        raise ConfigError(f"{place}: the value of {name} would be stored. Use secrets in api_key or extra_headers only")
    value = os.environ.get(name, default)
    if value is None:
        raise ConfigError(f"{place}: variable {name} is not set. Set the variable, or write ${{{name}:-a default}}")
    return value
