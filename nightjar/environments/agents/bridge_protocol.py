"""What the protocols of an ``AgentBridge`` share: parsed requests, the fields of untrusted bodies, and SSE events.

A protocol is a module with the names of ``BridgeProtocol``. ``bridge.PROTOCOLS`` lists the modules by path.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import orjson

from nightjar.core.json_bytes import json_bytes
from nightjar.core.messages import Messages, Response, Tool, Usage
from nightjar.core.rollout.state import SamplingArgs
from nightjar.core.text import one_line

T = TypeVar("T")

_DEEPEST = 128
_MOST_MARKS = 500_000
_MOST_OBJECTS = 20_000
_DEEPEST_OF_ORJSON = 254
_LONGEST_SHOWN = 80
_KINDS: dict[type[Any], str] = {
    str: "a text",
    list: "a list",
    dict: "an object",
    bool: "true or false",
    int: "an integer",
}
_NO_USAGE = Usage(prompt_tokens=0, reasoning_tokens=0, completion_tokens=0, total_tokens=0)


class RequestError(Exception):
    """A request that the bridge refuses. ``message`` is for the author of the agent."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request in Nightjar's own form. With ``hides_reasoning``, the agent does not expect the model's reasoning."""

    messages: Messages
    tools: list[Tool] | None = None
    sampling_args: SamplingArgs = field(default_factory=dict)
    is_streamed: bool = False
    hides_reasoning: bool = False


class BridgeProtocol(Protocol):
    """The names of a protocol's module.

    ``answer_body`` and ``stream_events`` encode the same response, as a whole and as a stream. ``error_event`` ends a
    stream that has already begun.
    """

    KEEP_ALIVE: bytes

    def parse(self, body: Any) -> ParsedRequest: ...
    def answer_body(self, response: Response, model: str) -> dict[str, Any]: ...
    def stream_events(self, response: Response, model: str) -> Iterator[bytes]: ...
    def error_body(self, status: int, message: str) -> dict[str, Any]: ...
    def error_event(self, status: int, message: str) -> bytes: ...


class Fields:
    """An object in the body of a request. Its methods raise a ``RequestError`` that names an invalid field."""

    def __init__(self, value: Any, place: str = "") -> None:
        if not isinstance(value, dict):
            raise RequestError(400, f"{place or 'The body'}: expected an object, found {_shown(value)}")
        self.raw: dict[str, Any] = value
        self.place = place

    def refused(self, name: str, problem: str) -> RequestError:
        return RequestError(400, f"{self.place_of(name)}: {problem}")

    def place_of(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def get(self, name: str, kind: type[T]) -> T | None:
        """Returns a field, or None if the field is missing or null."""
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.refused(name, f"expected {_KINDS[kind]}, found {_shown(value)}")
        return value

    def need(self, name: str, kind: type[T]) -> T:
        """Returns a field that must be there."""
        if (value := self.get(name, kind)) is None:
            raise self.refused(name, f"expected {_KINDS[kind]}, but the field is missing")
        return value

    def number(self, name: str) -> float | None:
        value = self.raw.get(name)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise self.refused(name, f"expected a number, found {_shown(value)}")

    def texts(self, name: str) -> str | list[str] | None:
        """Returns a field that is a text or a list of texts."""
        value = self.raw.get(name)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return value
        raise self.refused(name, f"expected a text or a list of texts, found {_shown(value)}")

    def object(self, name: str) -> Fields:
        return Fields(self.need(name, dict), self.place_of(name))

    def objects(self, name: str) -> list[Fields]:
        """Returns the objects of a list. A missing list is empty."""
        found = self.get(name, list) or []
        if len(found) > _MOST_OBJECTS:
            raise RequestError(
                413, f"{self.place_of(name)}: expected at most {_MOST_OBJECTS:,} elements, found {len(found):,}"
            )
        return [Fields(value, f"{self.place_of(name)}[{n}]") for n, value in enumerate(found)]

    def some_objects(self, name: str) -> list[Fields]:
        """Returns the objects of a list that must not be empty."""
        if not self.need(name, list):
            raise self.refused(name, "expected a list with at least one element")
        return self.objects(name)

    def unknown(self, name: str, known: Sequence[str]) -> RequestError:
        """Returns the error for a field whose value is not one of ``known``."""
        return self.refused(name, f"expected one of {', '.join(known)}; found {_shown(self.raw.get(name))}")


def _shown(value: Any) -> str:
    return one_line(repr(value)[: 2 * _LONGEST_SHOWN], _LONGEST_SHOWN)


def parse_json(body: bytes) -> Any:
    """Parses the body of a request. Raises ``RequestError`` if it is not JSON, or has too many or too deep values."""
    # Values need these marks, and much more memory than their text. Long texts that contain the marks count, too.
    if sum(map(body.count, (b",", b"[", b"{"))) > _MOST_MARKS:
        raise RequestError(413, f"The body has more than {_MOST_MARKS:,} commas and brackets")
    try:
        value = nested = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"The body is not valid JSON: {error}") from error
    for _ in range(_DEEPEST_OF_ORJSON - _DEEPEST):
        nested = [nested]
    try:
        orjson.dumps(nested)  # fails at orjson's own limit; records that contain the request need some levels, too
    except TypeError as error:
        raise RequestError(400, f"The body is nested more than {_DEEPEST} levels deep") from error
    return value


_TEXTS = {"stop": "stop", "stop_sequences": "stop", "reasoning_effort": "reasoning_effort"}
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_NUMBERS = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")


def sampling_args(fields: Fields) -> SamplingArgs:
    """Returns the sampling arguments that mean the same in every protocol. Token limits become ``max_tokens``."""
    found: SamplingArgs = {name: fields.number(name) for name in _NUMBERS}
    found |= {neutral: value for name, neutral in _TEXTS.items() if (value := fields.texts(name)) is not None}
    for name in _LIMITS:
        if (limit := fields.get(name, int)) is not None:
            if limit < 1:
                raise fields.refused(name, f"expected a positive integer, found {limit}")
            found["max_tokens"] = limit
    if fields.get("parallel_tool_calls", bool) is False:
        found["parallel_tool_calls"] = False
    return {name: value for name, value in found.items() if value is not None}


def refuse_stored(fields: Fields, *names: str) -> None:
    """Refuses fields that refer to earlier requests, because the bridge stores nothing."""
    for name in names:
        if fields.raw.get(name):
            raise fields.refused(name, "the server stores nothing; send the whole conversation")


def tool_choice(choice: str | None, function: str | None = None) -> SamplingArgs:
    """Returns the argument ``tool_choice`` in the form of a chat completion. The default, ``auto``, is left out."""
    if function is not None:
        return {"tool_choice": {"type": "function", "function": {"name": function}}}
    return {} if choice in {None, "auto"} else {"tool_choice": choice}


def usage_of(response: Response) -> Usage:
    return response.usage or _NO_USAGE


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def sse(data: Mapping[str, Any], event: str | None = None) -> bytes:
    """Encodes one event of a stream."""
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + json_bytes(data) + b"\n\n"


def openai_error(status: int, message: str) -> dict[str, Any]:
    """Returns an error in the form of OpenAI's API."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kinds |= dict.fromkeys((400, 413), "invalid_request_error")
    code = {401: "invalid_api_key"}.get(status)
    kind = kinds.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
