"""The user's own defaults, in ``config.toml`` of Nightjar's folder. Every other source overrides them.

::

    # nightjar config set eval.model my-model
    warehouse = "s3://team/warehouse"
    [eval]
    model = "my-model"
    base_url = "http://127.0.0.1:8000/v1"
    [eval.sampling_args]
    top_p = 0.9
    [judge]
    model = "gpt-4.1"
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from nightjar.clients.config import BaseUrl
from nightjar.core.files import file_lock, replace_file
from nightjar.core.home import config_path, home, read_config
from nightjar.core.secret_signs import is_secret_name
from nightjar.core.text import nearest
from nightjar.errors import ConfigError
from nightjar.evaluation.config.fields import VariableName
from nightjar.evaluation.config.parameters import plain_type
from nightjar.evaluation.config.run_config import RunConfig, message_of

_OF_ONE_RUN = frozenset({
    "env_id", "env_source", "env_args", "extra_env_kwargs", "env_dir_path", "replicas", "middleware", "suite", "name",
    "part", "hf_hub_dataset_name",
})  # fmt: skip


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class JudgeDefaults(_Strict):
    """The judge of runs that do not name a judge."""

    model: str | None = None
    base_url: BaseUrl | None = None
    api_key_var: VariableName | None = None


def _unset(field: FieldInfo) -> tuple[Any, FieldInfo]:
    empty = copy(field)
    empty.default, empty.default_factory = None, None
    return field.annotation | None, empty  # type: ignore[operator]


@cache
def user_config() -> type[BaseModel]:
    """Returns the schema of the file: fields of runs as ``eval.…``, the warehouse, and the judge."""
    fields: Any = {name: _unset(field) for name, field in RunConfig.model_fields.items() if name not in _OF_ONE_RUN}
    defaults = create_model("EvalDefaults", __base__=_Strict, output_dir=(str | None, None), **fields)
    return create_model(
        "UserConfig",
        __base__=_Strict,
        warehouse=(str | None, None),
        eval=(defaults, Field(default_factory=defaults)),
        judge=(JudgeDefaults, Field(default_factory=JudgeDefaults)),
    )


@cache
def known_settings() -> Mapping[str, FieldInfo]:
    found: dict[str, FieldInfo] = {}
    for name, field in user_config().model_fields.items():
        kind: Any = field.annotation
        is_section = isinstance(kind, type) and issubclass(kind, BaseModel)
        found |= {f"{name}.{key}": each for key, each in kind.model_fields.items()} if is_section else {name: field}
    return found


def user_defaults() -> dict[str, Any]:
    return dict(read_checked().get("eval", {}))


def settings() -> dict[str, Any]:
    return dict(_flat(read_checked()))


def field_of(key: str) -> tuple[FieldInfo, bool]:
    """Returns the field of a key, and whether the field is a table and the key is inside of it."""
    known = known_settings()
    if key in known:
        return known[key], False
    table = ".".join(key.split(".")[:2])
    is_below = table in known and get_origin(plain_type(known[table])) is dict
    is_secret = is_secret_name(key) and table != "eval.headers"  # headers only name variables
    if is_below and not is_secret:
        return known[table], True
    if is_secret:
        raise ConfigError(
            f"{key}: secrets must not be stored in this file. Set an environment variable, and name the variable: "
            "nightjar config set eval.api_key_var NAME"
        )
    if below := [name for name in known if name.startswith(f"{key}.")]:
        raise ConfigError(f"{key} is a section. Its settings are: {', '.join(below)}")
    sections = dict.fromkeys(f"{name.partition('.')[0]}.…" if "." in name else name for name in known)
    raise ConfigError(f"There is no setting {key!r}. {nearest(key, known, sections)} (docs/reference/configuration.md)")


def read_checked() -> dict[str, Any]:
    content = read_config()
    if not content:
        return content
    try:
        checked(content)
    except ConfigError as error:
        raise ConfigError(f"{config_path()}: {error}") from None
    return content


def checked(content: Mapping[str, Any]) -> BaseModel:
    try:
        return user_config().model_validate(content)
    except ValidationError as error:
        found = error.errors()[0]
        if found["type"] == "extra_forbidden":
            field_of(".".join(map(str, found["loc"])))
        raise ConfigError(message_of(found)) from None


def _flat(content: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", value


def set_setting(key: str, text: str) -> Any:
    value = _parsed(key, text)
    with _document() as document:
        *places, name = key.split(".")
        table: Any = document
        for place in places:
            table = table.setdefault(place, {})
        table[name] = value
        found: Any = checked(document.unwrap()).model_dump(mode="json")
        for place in key.split("."):
            found = found[place]
        table[name] = found
    return found


def unset_setting(key: str) -> bool:
    field_of(key)
    with _document() as document:
        return _remove(document, key.split("."))


def _parsed(key: str, text: str) -> Any:
    """Parses a typed value. Lists and tables are JSON; a value inside a table is JSON or else a text."""
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
def _document() -> Iterator[Any]:
    """Yields the file for changes, under a lock, and writes the file at the end. Unchanged parts keep their format."""
    import tomlkit

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
