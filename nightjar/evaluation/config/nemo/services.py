"""Sections of a config, and its services: the endpoints of models and judges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from nightjar.clients.config import NOT_TO_BE_SHOWN
from nightjar.clients.protocols import ClientType
from nightjar.core.text import nearest
from nightjar.evaluation.config.nemo.endpoints import CLIENTS, usual_key, without_route
from nightjar.evaluation.config.nemo.interceptors import REFUSED, Interceptor
from nightjar.evaluation.config.run_config import message_of

_UNKNOWN = "extra_forbidden"


class Section(BaseModel):
    """A mapping of a config. Each key is a field that has its effect, or a field that is refused with advice.

    ``others`` maps each value of ``type`` that only NeMo Evaluator has to advice on what to use instead.
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)

    others: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _check_type(cls, told: Any) -> Any:
        kind = told.get("type") if isinstance(told, Mapping) else None
        if isinstance(kind, str) and kind in cls.others:
            raise PydanticCustomError(
                REFUSED, "there is no type {kind} here: {why}", {"kind": repr(kind), "why": cls.others[kind]}
            )
        return told


def refused(why: str, *harmless: Any) -> BeforeValidator:
    """Marks a field that is refused unless its value is one of the harmless ones."""

    def check(value: Any) -> Any:
        if value not in harmless:
            raise PydanticCustomError(REFUSED, "cannot be honoured: {why}", {"why": why})
        return value

    return BeforeValidator(check)


def one_of(*kinds: type[Section]) -> WrapValidator:
    """Validates a value with the section that its ``type`` names, else with the last section."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, Mapping):
            return validate(value)
        known = (each for each in kinds if value.get("type") in get_args(each.model_fields["type"].annotation))
        return next(known, kinds[-1]).model_validate(value)  # so that the place of an error has no name of a class

    return WrapValidator(check)


def messages_of(error: ValidationError, kind: type[Section]) -> Iterator[str]:
    for found in error.errors():
        yield _unknown(found, kind) if found["type"] == _UNKNOWN else _said(found)


def _said(found: ErrorDetails) -> str:
    place = ".".join(map(str, found["loc"]))
    if not place:  # what was found is the whole config
        return found["msg"].removeprefix("Value error, ")
    return f"{place}: {found['msg']}" if found["type"] == REFUSED else message_of(found)


def _unknown(found: ErrorDetails, kind: type[Section]) -> str:
    known = {name: None for section in _sections_at(kind, found["loc"][:-1]) for name in section.model_fields}
    place = ".".join(map(str, found["loc"]))
    return f"{place}: there is no such key. {nearest(str(found['loc'][-1]), known)}"


def _sections_at(kind: Any, place: Sequence[int | str]) -> list[type[Section]]:
    """Returns the sections that may be at a place: several where the type decides."""
    if isinstance(kind, type) and issubclass(kind, Section):
        known = kind.model_fields.get(str(place[0])) if place else None
        return [] if place and known is None else _sections_at(known.annotation, place[1:]) if known else [kind]
    if get_origin(kind) in {dict, list}:
        return _sections_at(get_args(kind)[-1], place[1:])
    return [found for each in get_args(kind) if each is not NoneType for found in _sections_at(each, place)]


Protocol: TypeAlias = Literal["chat_completions", "completions", "responses"]
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(:-)?\}")
_START_IT = "start the server, and name it with type: api and its url"
_MIDDLEWARE = "finish reasons are recorded as the endpoint says them"


def _check_key(value: Any) -> Any:
    if value is not None and not (isinstance(value, str) and _VARIABLE.fullmatch(value)):
        message = "must name the variable that holds the key, ${NAME}: a file must not contain the key itself"
        raise PydanticCustomError(NOT_TO_BE_SHOWN, message)
    return value


class GenerationConfig(Section):
    """Sampling parameters. For missing parameters, the endpoint's defaults apply."""

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    max_tokens: int | None = Field(None, gt=0)
    seed: int | None = None
    stop: list[str] | None = None
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)

    def merge_onto(self, base: Self) -> Self:
        return base.model_copy(update=self.model_dump(exclude_none=True))


class ProxyConfig(Section):
    """Changes and limits of the requests to an endpoint."""

    interceptors: list[Interceptor] = Field(default_factory=list)
    """Middleware of the endpoint."""
    verbose: bool = False
    """Has no effect, because there is no proxy."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request."""
    extra_headers: dict[str, str] = Field(default_factory=dict)
    """HTTP headers, whose values name variables: ``${NAME}``."""
    request_timeout: float = Field(120.0, gt=0)
    """Seconds that a request may take."""
    max_retries: int = Field(0, ge=0)
    """Maximum number of retries of a request after temporary errors."""
    retry_on_status: Annotated[list[int], refused("the retried statuses are fixed: docs/guides/suites.md")] = Field(
        default_factory=lambda: [429, 502, 503, 504]
    )
    max_concurrent_upstream: int = Field(64, ge=1)
    """Maximum number of concurrent requests."""
    model_traffic: Annotated[
        dict[str, Any], refused("a run keeps every attempt: docs/reference/run-directory.md", {})
    ] = Field(default_factory=dict)
    finish_reason_fixup: Annotated[bool, refused(_MIDDLEWARE, True)] = True


class ExternalApiService(Section):
    """An endpoint that speaks a protocol of OpenAI."""

    others: ClassVar = {
        **dict.fromkeys(("vllm", "sglang", "nim", "docker_model", "dynamo"), _START_IT),
        "gym": "name the server as the benchmark: gym://HOST:PORT or gym://cmd:… (docs/guides/gym-servers.md)",
        "nat": "an agent is an environment here: docs/guides/environments.md",
        "custom": "pass your own client to run_evaluation (docs/coming-from/nemo-python.md)",
    }

    type: Literal["api"]
    url: str
    """URL with or without the route of the protocol at its end."""
    protocol: Protocol
    model: str | None = None
    """Name of the model at the endpoint. If None, the name of the service is used."""
    api_key: Annotated[str | None, BeforeValidator(_check_key)] = None
    """Variable that holds the key, ``${NAME}``."""
    health_path: Annotated[str | None, refused("the first requests show whether it answers", None)] = None
    max_input_tokens: Annotated[int | None, refused("the endpoint says when a prompt is too long", None)] = None
    max_output_tokens: Annotated[int | None, refused("set generation.max_tokens", None)] = None
    tokenizer: Annotated[str | None, refused("the endpoint counts tokens", None)] = None
    generation: GenerationConfig = Field(default_factory=GenerationConfig)
    proxy: ProxyConfig | None = None

    is_model_server: ClassVar[bool] = False
    is_managed: ClassVar[bool] = False

    @property
    def base_url(self) -> str:
        return without_route(self.url, self.protocol)

    @property
    def api_key_var(self) -> str | None:
        """Returns None if no variable is named, and none of ``KEYS`` holds the key of this host."""
        named = _VARIABLE.fullmatch(self.api_key or "")
        return named[1] if named else usual_key(self.base_url)

    @property
    def middleware(self) -> list[dict[str, Any]]:
        return [made for each in (self.proxy.interceptors if self.proxy else ()) for made in each.middleware()]

    @property
    def uses_cache(self) -> bool:
        return any(each.uses_cache for each in (self.proxy.interceptors if self.proxy else ()))

    @property
    def names_its_key(self) -> bool:
        """Returns whether the service names a variable that must be set; ``${NAME:-}`` may be unset."""
        return self.api_key is not None and not self.api_key.endswith(":-}")

    @property
    def client_type(self) -> ClientType:
        return CLIENTS[self.protocol]
