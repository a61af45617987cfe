"""The endpoint registry: names for endpoints, in a file of the project.

::

    # nightjar eval run gsm8k -m qwen3
    [[endpoint]]
    endpoint_id = "qwen3"
    model = "qwen/qwen3-235b-a22b-instruct-2507"
    url = "https://api.pinference.ai/api/v1"
    key = "PRIME_API_KEY"                       # the name of the variable
    headers = { "X-Team" = "$TEAM_TOKEN" }
    prices = { input = 0.2, output = 0.6 }      # USD per million tokens
    max_concurrent = 64

    [[endpoint]]
    endpoint_id = "qwen3-here"
    extends = "qwen3"
    url = "http://localhost:8000/v1"

    [[endpoint.middleware]]                     # applied to requests and responses, in this order
    use = "reasoning"

Several tables with the same ``endpoint_id`` are replicas of that endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nightjar.clients import ClientType
from nightjar.clients.config import BaseUrl
from nightjar.core.text import nearest
from nightjar.core.toml_files import TomlFile, TomlTable
from nightjar.errors import ConfigError
from nightjar.evaluation.config.fields import Middleware, NamedHeaders, Replica, VariableName
from nightjar.evaluation.config.run_config import message_of

DEFAULT_PATH = Path("configs/endpoints.toml")
_FILE_NAME = "endpoints.toml"
_TABLE = "endpoint"
SPELLINGS = {
    "url": "base_url",
    "api_base_url": "base_url",
    "key": "api_key_var",
    "type": "api_client_type",
    "extra_headers": "headers",
}


class Prices(BaseModel):
    """USD per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class EndpointRow(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    endpoint_id: str = Field(min_length=1)
    model: str = Field(min_length=1)
    base_url: BaseUrl
    api_key_var: VariableName
    api_client_type: ClientType = "openai_chat_completions"
    headers: NamedHeaders = Field(default_factory=dict)
    prices: Prices | None = None
    max_concurrent: int | None = Field(None, ge=1)
    """Maximum number of concurrent requests. If None, the limit of the run applies."""
    middleware: Middleware = Field(default_factory=list)
    """Middleware of requests and responses. It replaces the middleware of an extended endpoint."""


@dataclass(frozen=True)
class Registry:
    path: Path
    rows: Mapping[str, Sequence[EndpointRow]]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a registry from a file, or from ``endpoints.toml`` in a folder; errors name the line."""
        file = TomlFile.read(path / _FILE_NAME if path.is_dir() else path)
        for key in file.content.keys() - {_TABLE}:
            raise file.top.error(f"Unknown table or field {key!r}. A registry has only tables [[{_TABLE}]]", key)
        tables = file.tables(_TABLE)
        values = [_values(table) for table in tables]
        rows: dict[str, list[EndpointRow]] = {}
        for table, own in zip(tables, values, strict=True):
            for extended in _extended(table, own, values):
                row = _row(table, extended)
                _check_alike(table, row, rows.setdefault(row.endpoint_id, []))
                rows[row.endpoint_id].append(row)
        return cls(file.path, rows)

    def fields(self, endpoint_id: str) -> dict[str, Any]:
        if endpoint_id not in self.rows:
            raise ConfigError(
                f"Endpoint id {endpoint_id!r} is not in the registry {self.path}. {nearest(endpoint_id, self.rows)}"
            )
        first, *others = replicas = self.rows[endpoint_id]
        own = first.model_dump(include={"model", "base_url", "api_key_var", "api_client_type"})
        if others:
            own["replicas"] = [Replica(**row.model_dump(include={*Replica.model_fields})) for row in replicas]
        elif first.headers:
            own["headers"] = first.headers
        if first.middleware:
            own["middleware"] = first.middleware
        if first.prices:
            own |= {"input_price": first.prices.input, "output_price": first.prices.output}
        if limits := [row.max_concurrent for row in replicas if row.max_concurrent]:
            own["max_concurrent"] = sum(limits)
        return own


def _values(table: TomlTable) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, field in table.fields({*EndpointRow.model_fields, "extends"}, SPELLINGS):
        value = values[field] = table.content[key]
        if field in {"endpoint_id", "extends"} and not isinstance(value, str):
            raise table.error(f"{key}: expected a text, found {type(value).__name__}", key)
    if "endpoint_id" not in values:
        raise table.error("endpoint_id is missing")
    return values


def _extended(
    table: TomlTable, values: Mapping[str, Any], others: Sequence[Mapping[str, Any]], depth: int = 0
) -> list[dict[str, Any]]:
    """Returns a table's own and inherited values per replica. A table with its own URL extends only one replica."""
    own = {key: value for key, value in values.items() if key != "extends"}
    if (base := values.get("extends")) is None:
        return [own]
    bases = [each for each in others if each["endpoint_id"] == base]
    if not bases or depth > len(others):
        known = {each["endpoint_id"] for each in others}
        wrong = f"extends {base!r}, which extends it" if bases else f"extends {base!r}, which is not in this file"
        raise table.error(f"{wrong}. {nearest(base, known - {base})}", "extends")
    inherited = [row for each in bases for row in _extended(table, each, others, depth + 1)]
    return [_merged(row, own) for row in (inherited[:1] if "base_url" in own else inherited)]


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    both = [table["headers"] for table in (base, own) if isinstance(table.get("headers"), dict)]
    headers = {"headers": {**both[0], **both[1]}} if len(both) > 1 else {}
    return {**base, **own, **headers}


def _row(table: TomlTable, values: Mapping[str, Any]) -> EndpointRow:
    try:
        return EndpointRow.model_validate(values)
    except ValidationError as error:
        found = error.errors()[0]
        key = str(found["loc"][0])
        usual = next((name for name, field in SPELLINGS.items() if field == key), key)
        written = next((name for name in table.content if SPELLINGS.get(name, name) == key), usual)
        raise table.error(message_of(found).replace(key, written, 1), written) from None


def _check_alike(table: TomlTable, row: EndpointRow, others: Sequence[EndpointRow]) -> None:
    for field in ("model", "api_client_type", "prices", "middleware"):
        if others and getattr(row, field) != getattr(others[0], field):
            raise table.error(
                f"{field} of endpoint {row.endpoint_id!r} is {getattr(row, field)!r} here and "
                f"{getattr(others[0], field)!r} above: replicas may differ only in url, key and headers",
                field,
            )
