"""Types of configuration fields. A configuration is written to disk, so these types refuse secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from nightjar.clients import ClientType
from nightjar.clients.config import NOT_TO_BE_SHOWN, BaseUrl, EndpointClientConfig
from nightjar.core.secrecy import REFERENCE, is_reference
from nightjar.core.secret_signs import KEY_FORMS, SECRET_FORMS, SECRET_NAME, is_secret_name, looks_secret
from nightjar.errors import TYPED_HEADER, ConfigError


def check_open(arguments: Mapping[str, Any]) -> Any:
    """Returns the arguments if they hold no secret. Otherwise raises an error with the place but without the value."""
    if place := next(_secrets(arguments), None):
        message = (
            "{place} looks like a secret, and would be stored. Set an environment variable and give its name "
            "in api_key_var or headers of an endpoint, or in an argument that takes the name of a variable"
        )
        raise PydanticCustomError(NOT_TO_BE_SHOWN, message, {"place": place})
    return arguments


def _secrets(value: Any, place: str = "", is_named: bool = False) -> Iterator[str]:
    """Yields the places of secrets in a value. ``is_named`` says whether the value's name is the name of a secret."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _secrets(each, f"{place}.{name}".lstrip("."), is_secret_name(name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, each in enumerate(value):
            yield from _secrets(each, f"{place}.{number}", is_named)
    elif isinstance(value, str) and not is_reference(value) and (is_named or looks_secret(value)) and value:
        yield place


_DEPTH = 2
_WRITTEN_OUT = {
    "description": "The value looks like a secret, which would be stored. Give the name of an environment variable",
    "type": "string",
    "pattern": SECRET_FORMS,
}
_NAMED_SECRET = {
    "description": "A secret would be stored. Give the name of an environment variable",
    "type": "string",
    "pattern": f"^(?!{REFERENCE}$).",
}


def _open(depth: int) -> dict[str, Any]:
    """Returns a JSON schema that refuses the secrets that ``check_open`` refuses, to a depth of two."""
    schema: dict[str, Any] = {"not": _WRITTEN_OUT}
    if depth:
        inner = _open(depth - 1)
        schema |= {"items": inner, "additionalProperties": inner}
        schema["patternProperties"] = {SECRET_NAME: {**inner, "not": {"anyOf": [_WRITTEN_OUT, _NAMED_SECRET]}}}
    return schema


OpenArguments: TypeAlias = Annotated[
    dict[str, Any], AfterValidator(check_open), WithJsonSchema({**_open(_DEPTH), "type": "object"})
]
"""Arguments without secrets. The schema makes Prefect's server refuse secrets; ``check_open`` finds deeper ones."""


_HEADER_RULE = (
    'must be the name of an environment variable that holds it, such as "$TEAM_TOKEN" or "Bearer $TEAM_TOKEN", '
    "because it is stored"
)
_REFUSED_HEADER = {"description": f"The value of a header {_HEADER_RULE}", "pattern": f"^(?!{REFERENCE}$)"}
_NAMED = {"type": "object", "additionalProperties": {"type": "string", "not": _REFUSED_HEADER}}


def name_values(headers: Mapping[str, str]) -> dict[str, str]:
    """Moves header values that were typed in full into environment variables of this process."""
    named = dict(headers)
    for name, value in headers.items():
        if not is_reference(value):
            variable = f"{TYPED_HEADER}{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
            os.environ[variable], named[name] = value, f"${variable}"
    return named


def _check_named(headers: dict[str, Any]) -> dict[str, Any]:
    for name, value in headers.items():
        if not is_reference(value):
            raise PydanticCustomError(
                NOT_TO_BE_SHOWN, "the value of header {header} {rule}", {"header": repr(name), "rule": _HEADER_RULE}
            )
    return headers


_NOT_SENT = {"n": 1, "stream": False}
"""Parameters that would change the form of a response, and the only value that each may have."""
_WHY = {
    "n": "each rollout is one request. For several rollouts of an example, use rollouts_per_example (-r)",
    "stream": "responses are read as a whole",
}


def _check_sampling(arguments: dict[str, Any]) -> dict[str, Any]:
    headers = arguments.get("extra_headers")
    if isinstance(headers, dict):
        _check_named(headers)
    elif headers is not None:
        raise PydanticCustomError(
            NOT_TO_BE_SHOWN, "extra_headers must be an object that maps each header to the name of a variable"
        )
    extra = arguments.get("extra_body")
    for place in (arguments, extra if isinstance(extra, dict) else {}):
        for name, usual in _NOT_SENT.items():
            if place.get(name) not in (None, usual):
                raise PydanticCustomError(
                    NOT_TO_BE_SHOWN, "{name} is not possible: {why}", {"name": name, "why": _WHY[name]}
                )
    return arguments


NamedHeaders: TypeAlias = Annotated[dict[str, str], AfterValidator(_check_named), WithJsonSchema(_NAMED)]
"""HTTP headers with environment variables as values, ``$NAME``. The schema makes Prefect's server refuse others."""
SamplingFields: TypeAlias = Annotated[
    dict[str, Any],
    AfterValidator(_check_sampling),
    AfterValidator(check_open),
    WithJsonSchema({"type": "object", "patternProperties": {"^extra_headers$": _NAMED}}),
]
"""Sampling parameters without secrets; ``extra_headers`` are ``NamedHeaders``."""


def _check_specs(specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not specs:
        return specs
    from nightjar.clients.middleware_client import check_middleware

    for spec in specs:
        check_open({str(spec.get("use")): spec})
    try:
        check_middleware(specs)
    except ConfigError as error:
        said = {"said": str(error).removeprefix("middleware").lstrip(": ")}
        raise PydanticCustomError(NOT_TO_BE_SHOWN, "{said}", said) from None  # the error's message names the value
    return specs


Middleware: TypeAlias = Annotated[list[dict[str, Any]], AfterValidator(_check_specs)]
"""List of middleware. ``use`` is the name of a middleware; the other keys are its arguments."""


_SOURCE_RULE = (
    "must not contain a web user, a password or a query, because it is stored: configure git or pip with them"
)
_REFUSED_SOURCE = {
    "description": f"The source of an environment {_SOURCE_RULE}",
    "pattern": r"https?://[^/]*@|://[^/]*:[^/]*@|\?",
}
_SCHEMES = {"https", "http", "ssh", "file"}


def _check_source(source: str) -> str:
    if source.startswith("sha256:") and not re.fullmatch(r"sha256:[0-9a-f]{64}", source):
        raise ValueError("must be sha256: and 64 hexadecimal digits")
    if "://" not in source:
        return source
    try:
        parts = urlsplit(source.removeprefix("git+"))
    except ValueError:
        raise ValueError("is no URL") from None
    if parts.query or parts.password or (parts.username and parts.scheme != "ssh"):
        raise PydanticCustomError(NOT_TO_BE_SHOWN, _SOURCE_RULE)
    if parts.scheme not in _SCHEMES:
        raise ValueError("must start with https://, or with git+https:// or git+ssh:// for a repository")
    return source


EnvironmentSource: TypeAlias = Annotated[
    str, AfterValidator(_check_source), WithJsonSchema({"type": "string", "not": _REFUSED_SOURCE})
]
"""``owner/name@version``, a wheel, ``git+https://…``, ``sha256:…``. The schema lets Prefect's server refuse secrets."""


def _check_variable(name: str) -> str:
    if not (name.isascii() and name.isidentifier()) or looks_secret(name):
        raise PydanticCustomError(NOT_TO_BE_SHOWN, "must be the name of the environment variable that holds the key")
    return name


_VARIABLE = {"type": "string", "pattern": r"^[A-Za-z_]\w*$", "not": {"type": "string", "pattern": KEY_FORMS}}
VariableName: TypeAlias = Annotated[str, AfterValidator(_check_variable), WithJsonSchema(_VARIABLE)]
"""Name of an environment variable. A wrong value may be the key itself, so error messages do not show it."""


class Replica(BaseModel):
    """One of several places that serve an endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    base_url: BaseUrl
    api_key_var: VariableName
    headers: NamedHeaders = Field(default_factory=dict)
    """HTTP headers of every request to the replica. The values name variables."""

    def client_config(self, headers: dict[str, str]) -> EndpointClientConfig:
        return EndpointClientConfig(
            api_base_url=self.base_url, api_key_var=self.api_key_var, extra_headers={**self.headers, **headers}
        )


class Endpoint(TypedDict):
    """One variant of an endpoint in a registry. If an endpoint has several variants, they are replicas."""

    key: str
    url: str
    model: str
    api_client_type: NotRequired[ClientType]
    extra_headers: NotRequired[dict[str, str]]


Endpoints: TypeAlias = dict[str, list[Endpoint]]

ProviderName: TypeAlias = Literal[
    "prime", "openai", "anthropic", "openrouter", "deepseek", "minimax", "glm", "local", "vllm"
]
