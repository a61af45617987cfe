"""Suites: several evaluations in one file.

::

    # nightjar eval run configs/eval/nightly.toml
    model = "openai/gpt-4.1-mini"          # for all evaluations that do not set it
    num_examples = 100

    [sampling]
    temperature = 0.7

    [[eval]]
    env_id = "gsm8k"

    [[eval]]
    env_id = "gsm8k"
    name = "gsm8k-cold"
    [eval.sampling]
    temperature = 0.0

    [[ablation]]                           # an evaluation for each combination
    env_id = "arithmetic"
    [ablation.sweep]
    rollouts_per_example = [1, 4]
    [ablation.sweep.env_args]
    largest = [9, 99]
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_origin

from nightjar.core.toml_files import TomlFile, TomlTable
from nightjar.errors import ConfigError
from nightjar.evaluation.config.nemo.endpoints import ENDINGS as YAML
from nightjar.evaluation.config.parameters import plain_type
from nightjar.evaluation.config.precedence import (
    ABLATION,
    ENDPOINT_ID,
    EVAL,
    FLAG,
    SUITE,
    Evaluation,
    Layer,
    refuse_fields_of_one,
    resolve_evaluation,
)
from nightjar.evaluation.config.run_config import RunConfig

ENDINGS = (".toml", *YAML)
BUDGETS = frozenset({"max_total_tokens", "max_cost_usd"})
"""Fields of a whole suite. The evaluations of the suite share the budget."""
_EVAL, _ABLATION, _SWEEP = "eval", "ablation", "sweep"
_REGISTRY = "endpoints_path"
_SPELLINGS = {"id": "env_id", "args": "env_args", "sampling": "sampling_args", "api_base_url": "base_url"}
_WITHOUT_EFFECT = frozenset({"save_results", "disable_env_server", "num_workers"})
_KINDS = {dict: "a table", list: "a list", str: "a text"}
_SWEPT_BY_KEY = ("env_args", "extra_env_kwargs", "sampling_args")


class _Part(NamedTuple):
    """One evaluation of the file. ``swept`` is the name that a sweep gives the evaluation."""

    table: TomlTable
    values: dict[str, Any]
    swept: str = ""


def load_suite(path: Path, typed: Mapping[str, Any], registry: Path | None = None) -> list[Evaluation]:
    """Reads a suite, in TOML or as a YAML config of NeMo Evaluator.

    Args:
        path: the file of the suite.
        typed: fields that override the values of all evaluations. Tags are added to the tags in the file.
        registry: replaces the endpoint registry that the file names.

    Raises:
        ConfigError: the file is invalid, or a field in ``typed`` cannot be set for all evaluations.
    """
    if path.suffix in YAML:
        from nightjar.evaluation.config.nemo.file import NemoConfigFile

        return NemoConfigFile.read(path).evaluations(typed, registry)
    refuse_fields_of_one(typed)
    file = TomlFile.read(path)
    arrays = {_EVAL: file.tables(_EVAL), _ABLATION: file.tables(_ABLATION)}
    top = {key: value for key, value in file.content.items() if key not in arrays}
    whole = {"suite": path.stem, **_fields(file.top._replace(content=top))}
    parts = [_Part(table, _fields(table)) for table in arrays[_EVAL]]
    parts += [part for table in arrays[_ABLATION] for part in _swept(table, whole, typed)]
    if not parts:
        raise ConfigError(f"{path}: the file has no evaluations. Add [[{_EVAL}]] with an env_id")
    names = _names(parts, whole)
    return [_evaluation(part, whole, name, typed, registry) for part, name in zip(parts, names, strict=True)]


def _fields(table: TomlTable, below: str = "") -> dict[str, Any]:
    own = {_SWEEP} if table.array == _ABLATION and not below else set[str]()
    known = {*RunConfig.model_fields, ENDPOINT_ID, _REGISTRY, *own}
    content = table.content[below] if below else table.content
    found: dict[str, Any] = {}
    for key, field in table.fields(known, _SPELLINGS, below, _WITHOUT_EFFECT):
        place = f"{below}.{key}" if below else key
        if table.array and field in BUDGETS:
            raise table.error(f"{key} applies to the whole suite: set it above the evaluations", place)
        if not below:
            _check_kind(table, field, content[key], place)
        found[field] = content[key]
    return found


def _check_kind(table: TomlTable, field: str, value: Any, place: str) -> None:
    annotation = plain_type(RunConfig.model_fields[field]) if field in RunConfig.model_fields else str
    kind = get_origin(annotation) or annotation
    if field != _SWEEP and kind in _KINDS and not isinstance(value, kind):
        raise table.error(f"{place}: expected {_KINDS[kind]}, found {type(value).__name__}", place)


def _swept(table: TomlTable, whole: Mapping[str, Any], typed: Mapping[str, Any]) -> Iterator[_Part]:
    fixed = _fields(table)
    sweep = fixed.pop(_SWEEP, None)
    if not isinstance(sweep, dict) or not sweep:
        raise table.error(f"the values of the sweep are missing: [{_ABLATION}.{_SWEEP}]")
    axes = dict(_axes(table, fixed))
    _refuse_swept(table, axes, typed)
    for values in itertools.product(*axes.values()):
        part = dict(fixed)
        for (field, key), value in zip(axes, values, strict=True):
            part[field] = {**part.get(field, whole.get(field, {})), key: value} if key else value
        swept = " ".join(f"{key or field}={value}" for (field, key), value in zip(axes, values, strict=True))
        yield _Part(table, part, swept)


def _refuse_swept(table: TomlTable, axes: Iterable[tuple[str, str]], typed: Mapping[str, Any]) -> None:
    names = {*typed, *typed.get("sampling_args", {})}
    for field, key in axes:
        name = key if key and field == "sampling_args" else field
        if name in names:
            line = table.file.line(table.array, table.number, _SWEEP)
            flag = name if name in typed else "sampling_args"
            raise ConfigError(f"{flag}: the suite has several values of {name} ({table.file.path}, line {line})")


def _axes(table: TomlTable, fixed: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], list[Any]]]:
    """Yields each swept field, with the key inside the field if there is one, and the values."""
    for field, swept in _fields(table, _SWEEP).items():
        by_key = field in _SWEPT_BY_KEY and isinstance(swept, dict)
        for key, values in (swept if by_key else {"": swept}).items():
            place = f"{_SWEEP}.{field}" + (f".{key}" if key else "")
            if not isinstance(values, list) or not values:
                raise table.error(f"{place}: expected a list of values", place)
            if key in fixed.get(field, {}) if key else field in fixed:
                raise table.error(f"{place}: this field is both fixed and swept", place)
            for value in [] if key else values:
                _check_kind(table, field, value, place)
            yield (field, key), values


def _names(parts: list[_Part], whole: Mapping[str, Any]) -> list[str | None]:
    names: list[str | None] = []
    taken: Counter[str] = Counter()
    for part in parts:
        given = part.values.get("name")
        env_id = str(part.values.get("env_id", whole.get("env_id")))
        name = " ".join(filter(None, (str(given or env_id), part.swept)))
        taken[name] += 1
        if given and taken[name] > 1:
            raise part.table.error(f"{name!r} is also the name of another evaluation", "name")
        names.append(None if name == env_id and taken[name] == 1 else name + f"-{taken[name]}" * (taken[name] > 1))
    return names


def _evaluation(
    part: _Part, whole: Mapping[str, Any], name: str | None, typed: Mapping[str, Any], registry: Path | None
) -> Evaluation:
    own = {**part.values, **({"name": name} if name else {})}
    written, file = own.pop(_REGISTRY, whole.get(_REGISTRY)), part.table.file.path
    if registry is None and written is not None:
        registry = file.parent / written
    tags = [*own.get("tags", whole.get("tags", [])), *typed.get("tags", [])]
    layers = [
        Layer(FLAG, {**typed, **({"tags": tags} if "tags" in typed else {})}),
        Layer(EVAL if part.table.array == _EVAL else ABLATION, own),
        Layer(SUITE, {key: value for key, value in whole.items() if key != _REGISTRY}),
    ]
    try:
        found = resolve_evaluation(layers, registry)
    except ConfigError as error:
        field = str(error).partition(":")[0].partition(".")[0]
        if type(error) is not ConfigError or field not in {*RunConfig.model_fields, ENDPOINT_ID} or field in typed:
            raise
        raise _located(part.table, field, str(error)) from error
    return replace(found, files={**found.files, SUITE: file})


def _located(table: TomlTable, field: str, message: str) -> ConfigError:
    keys = [field, *(key for key, name in _SPELLINGS.items() if name == field)]
    for place in (table, table.file.top):
        if written := next((key for key in keys if key in place.content), None):
            return place.error(message, written)
    return table.error(message)
