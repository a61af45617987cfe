"""JSON schemas in the strict form that endpoints ask of tools.

Strict means that every object lists all its properties, requires each of them and allows no others, so that an
endpoint can force a model's arguments into the schema. The rules are those of OpenAI's structured outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.errors import ConfigError

JsonSchema = dict[str, Any]

_ANNOTATIONS = frozenset(
    {
        "$anchor", "$comment", "$defs", "$schema", "contentEncoding", "contentMediaType", "contentSchema", "default",
        "definitions", "deprecated", "description", "examples", "readOnly", "title", "writeOnly",
    }
)  # fmt: skip
"""Keys that may stand beside a ``$ref`` because they do not change which values are valid."""


class NotStrictError(ConfigError):
    """A schema accepts values that no strict schema can describe, such as objects with free keys."""


def strict_schema(schema: Mapping[str, Any]) -> JsonSchema:
    """Returns a schema in strict form; the given one stays as it is.

    Raises:
        NotStrictError: it has an object with free keys (``dict[str, int]``), or a reference beside constraints.
    """
    return _strict(schema, schema, ())


def _strict(schema: Mapping[str, Any], root: Mapping[str, Any], inside: tuple[str, ...]) -> JsonSchema:
    """Returns a part of ``root`` in strict form; ``inside`` are the references that led here by being unfolded."""
    if "$ref" in schema:
        return _unfolded(schema, root, inside)
    strict = dict(schema)
    for name in ("$defs", "definitions", "properties"):
        if isinstance(strict.get(name), dict):
            strict[name] = {key: _strict(part, root, inside) for key, part in strict[name].items()}
    _close_object(strict)
    if isinstance(strict.get("items"), dict):
        strict["items"] = _strict(strict["items"], root, inside)
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(strict.get(name), list):
            strict[name] = [_strict(part, root, inside) for part in strict[name]]
    if "oneOf" in strict:
        strict["anyOf"] = [*strict.get("anyOf", []), *strict.pop("oneOf")]
    if strict.get("default", ...) is None:
        del strict["default"]
    return strict


def _unfolded(schema: Mapping[str, Any], root: Mapping[str, Any], inside: tuple[str, ...]) -> JsonSchema:
    """Returns a reference as it is where it stands alone, else what it refers to, merged with what is beside."""
    ref = schema["$ref"]
    beside = {key: value for key, value in schema.items() if key != "$ref" and (key, value) != ("default", None)}
    if constraints := sorted(beside.keys() - _ANNOTATIONS):
        raise NotStrictError(f"{ref!r} stands beside {', '.join(constraints)}")
    if not beside or ref in inside:
        return {"$ref": ref}
    found: Any = root
    for key in ref.removeprefix("#/").split("/"):
        found = found[key.replace("~1", "/").replace("~0", "~")]
    return _strict({**beside, **found, **beside}, root, (*inside, ref))


def _close_object(schema: JsonSchema) -> None:
    """Makes an object allow its properties only, and require all of them."""
    properties = schema.get("properties")
    if "type" not in schema and isinstance(properties, dict):
        schema["type"] = "object"
    kinds = schema.get("type")
    if schema.get("additionalProperties", False) is not False:
        raise NotStrictError("an object takes any keys")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        schema["additionalProperties"] = False
    if isinstance(properties, dict):
        schema["required"] = list(properties)
