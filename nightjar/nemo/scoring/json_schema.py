"""``validate_json_schema``: does an answer hold JSON of a shape?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from nightjar.errors import ConfigError
from nightjar.scorers.json_texts import extract_json

__all__ = ["extract_json", "validate_json_schema"]


def validate_json_schema(response: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Says whether the JSON in a response meets a schema, and else what is wrong first.

    Raises:
        ConfigError: the schema is none.
    """
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigError(f"The JSON schema is none: {error.message}") from error
    value = extract_json(response)
    if value is None and response.strip() != "null":
        return {"correct": False, "valid": False, "error": "there is no JSON in it"}
    problem = next(iter(sorted(kind(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))), None)
    place = "" if problem is None else f"{problem.json_path}: "
    return {"correct": problem is None, "valid": problem is None, "error": problem and f"{place}{problem.message}"}
