"""Middleware changes requests and responses. ``BUILT_IN`` lists the built-in classes. Their fields are arguments.

A middleware is a class with the method ``request``, ``response``, or both. The methods may be sync or async, and run in
the event loop of the run::

    class InFrench:
        def __init__(self, politely: bool = True) -> None: ...

        def request(self, request: Request) -> Request:
            return replace(request, messages=[SystemMessage(content="Réponds en français."), *request.messages])

        def response(self, response: Response, request: Request) -> Response:
            return response
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from nightjar.core.messages import (
    ImageUrlContentPart,
    ImageUrlSource,
    Message,
    Messages,
    Response,
    SystemMessage,
    Tool,
    content_text,
    dump_message,
    dump_messages,
)
from nightjar.core.secrecy import error_text, hide_bytes
from nightjar.core.secret_signs import HIDDEN, is_secret_name
from nightjar.errors import ConfigError, TurnLimitError

_BODY = "extra_body"
_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})

_REMEMBERED_ROLLOUTS = 65_536
_CONVERSATION = ("messages", "input", "prompt")

logger = logging.getLogger(__name__)

FILE_NAME = "requests.jsonl"


@dataclass(frozen=True)
class Request:
    """A request in the same form for every protocol. Use ``dataclasses.replace`` to change a request.

    ``extra_headers`` in ``parameters`` name environment variables. Fields of ``extra_body`` are sent unchanged.
    ``state`` is the rollout's state (read-only), or None for requests outside of rollouts, such as a judge's.
    """

    messages: Messages
    model: str
    parameters: Mapping[str, Any]
    tools: list[Tool] | None = None
    state: Mapping[str, Any] | None = None

    def without(self, names: Iterable[str]) -> Request:
        """Returns the request without some parameters, which are also removed from ``extra_body``."""
        gone = _spellings(names)
        kept = {name: value for name, value in self.parameters.items() if name not in gone}
        if body := kept.get(_BODY):
            kept[_BODY] = {name: value for name, value in body.items() if name not in gone}
        return replace(self, parameters=kept)

    def value(self, name: str) -> Any:
        """Returns a parameter, which may also be in ``extra_body``, or None if it is not set."""
        body = self.parameters.get(_BODY) or {}
        found = (place.get(each) for place in (body, self.parameters) for each in _spellings([name]))
        return next((value for value in found if value is not None), None)

    def sending(self, values: Mapping[str, Any]) -> Request:
        """Returns the request with fields that replace parameters. The names of these fields are sent unchanged."""
        other = self.without(values)
        body = {**(other.parameters.get(_BODY) or {}), **values}
        return replace(other, parameters={**other.parameters, _BODY: body})


def _spellings(names: Iterable[str]) -> set[str]:
    wanted = set(names)
    return wanted | _LIMITS if wanted & _LIMITS else wanted


class BuiltIn(BaseModel):
    """A middleware whose arguments are validated before the first request."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Drop(BuiltIn):
    """Removes parameters."""

    parameters: list[str] = Field(min_length=1)
    """Their names."""

    def request(self, request: Request) -> Request:
        return request.without(self.parameters)


class Rename(BuiltIn):
    """Renames parameters."""

    parameters: dict[str, str] = Field(min_length=1)
    """Maps a parameter's name to the name that is sent instead."""

    @field_validator("parameters")
    @classmethod
    def _check_free(cls, names: dict[str, str]) -> dict[str, str]:
        sent = [*names.values()]
        taken = [name for name in sent if name in {"model", *_CONVERSATION} or sent.count(name) > 1]
        if taken:
            raise ValueError(f"{taken[0]!r} would be sent twice")
        return names

    def request(self, request: Request) -> Request:
        values = {new: value for old, new in self.parameters.items() if (value := request.value(old)) is not None}
        return request.without(self.parameters).sending(values) if values else request


class Payload(BuiltIn):
    """Sets fields of the request body. Tables are merged field by field."""

    set: dict[str, Any] = Field(min_length=1)
    """Field to value."""

    @field_validator("set")
    @classmethod
    def _check_asks(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name in ("model", *_CONVERSATION):
            if name in values and not values[name]:
                raise ValueError(f"{name!r} must not be empty")
        return values

    def request(self, request: Request) -> Request:
        return request.sending({name: _joined(request.value(name), value) for name, value in self.set.items()})


class System(BuiltIn):
    """Adds a system prompt."""

    text: str = Field(min_length=1)
    """The text of the prompt."""
    mode: Literal["prepend", "append", "replace"] = "prepend"
    """Where the text goes: before or after the text of the first system message, or in place of all system messages."""

    def request(self, request: Request) -> Request:
        first = next((place for place, message in enumerate(request.messages) if message.role == "system"), None)
        if self.mode == "replace" or first is None:
            others = [message for message in request.messages if message.role != "system"]
            return replace(request, messages=[SystemMessage(content=self.text), *others])
        said = content_text(request.messages[first].content)
        texts = [self.text, said] if self.mode == "prepend" else [said, self.text]
        changed = list(request.messages)
        changed[first] = _system(*texts)
        return replace(request, messages=changed)


class ConsolidateSystem(BuiltIn):
    """Merges all system messages into one system message at the beginning."""

    def request(self, request: Request) -> Request:
        texts = [content_text(message.content) for message in request.messages if message.role == "system"]
        others = [message for message in request.messages if message.role != "system"]
        return replace(request, messages=[_system(*texts), *others]) if texts else request


class Tools(BuiltIn):
    """Changes the tools of the request."""

    drop: list[str] = Field(default_factory=list)
    """Names of tools to remove."""
    without: list[str] = Field(default_factory=list)
    """Keywords to remove from the schemas of arguments, such as additionalProperties."""
    strict: bool | None = None
    """Whether the endpoint enforces the schemas. None means the environment's setting."""

    def request(self, request: Request) -> Request:
        offered = [self._changed(tool) for tool in request.tools or () if tool.name not in self.drop]
        return replace(request, tools=offered or None)

    def _changed(self, tool: Tool) -> Tool:
        strict = tool.strict if self.strict is None else self.strict
        parameters = _schema_without(tool.parameters, frozenset(self.without)) if self.without else tool.parameters
        return tool.model_copy(update={"strict": strict, "parameters": parameters})


class Reasoning(BuiltIn):
    """Moves reasoning from the text of a response to the field for reasoning, so that reasoning is not scored."""

    start: str = Field("<think>", min_length=1)
    """The mark at the start of the reasoning. If a text has only an end mark, the reasoning starts with the text."""
    end: str = Field("</think>", min_length=1)
    """The mark at the end of the reasoning. Without an end mark, everything after the start mark is reasoning."""

    def response(self, response: Response, request: Request) -> Response:  # noqa: ARG002 - the protocol of a middleware
        said = response.message.content
        if not isinstance(said, str) or not (self.start in said or self.end in said):
            return response
        text, thoughts = self._parted(said)
        reasoning = "\n".join(filter(None, [response.message.reasoning_content, *thoughts])) or None
        message = response.message.model_copy(update={"content": text, "reasoning_content": reasoning})
        return response.model_copy(update={"message": message})

    def _parted(self, said: str) -> tuple[str, list[str]]:
        head, has_end, _ = said.partition(self.end)
        if has_end and self.start not in head:  # the chat template has written the start into the prompt
            said = self.start + said
        texts, thoughts = [], []
        while self.start in said:
            before, _, rest = said.partition(self.start)
            thought, _, said = rest.partition(self.end)
            texts.append(before)
            thoughts.append(thought.strip())
        return "".join([*texts, said]).strip(), thoughts


class Images(BuiltIn):
    """Sets the detail in which the model sees images."""

    detail: Literal["auto", "low", "high"]
    """As in the APIs of OpenAI: a low detail costs fewer tokens."""

    def request(self, request: Request) -> Request:
        return replace(request, messages=list(map(self._changed, request.messages)))

    def _changed(self, message: Message) -> Message:
        if not isinstance(message.content, list):
            return message
        parts = [self._detailed(part) for part in message.content]
        return message.model_copy(update={"content": parts})

    def _detailed(self, part: Any) -> Any:
        if not isinstance(part, ImageUrlContentPart):
            return part
        image = ImageUrlSource(**{**part.image_url.model_dump(), "detail": self.detail})
        return part.model_copy(update={"image_url": image})


class TurnLimit(BuiltIn):
    """Ends a rollout after a number of requests. The conversation so far is scored."""

    turns: int = Field(ge=1)
    """Maximum number of requests of a rollout; retries are not counted."""

    _asked: OrderedDict[str, int] = PrivateAttr(default_factory=OrderedDict)

    def request(self, request: Request) -> Request:
        if request.state is None or (rollout := request.state.get("trajectory_id")) is None:
            return request
        asked = self._asked[rollout] = self._asked.pop(rollout, 0) + 1
        if len(self._asked) > _REMEMBERED_ROLLOUTS:
            self._asked.popitem(last=False)
        if asked > self.turns:
            raise TurnLimitError(f"The rollout has had its {self.turns} turns")
        return request


def _system(*texts: str) -> Message:
    return SystemMessage(content="\n\n".join(texts))


def _joined(before: Any, after: Any) -> Any:
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return after
    return {**before, **{name: _joined(before.get(name), value) for name, value in after.items()}}


def _schema_without(schema: Any, keywords: frozenset[str]) -> Any:
    """Removes keywords from a JSON schema, at any depth. Properties with these names stay."""
    if isinstance(schema, list):
        return [_schema_without(each, keywords) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: {key: _schema_without(each, keywords) for key, each in value.items()}
        if name in {"properties", "$defs", "definitions"} and isinstance(value, Mapping)
        else _schema_without(value, keywords)
        for name, value in schema.items()
        if name not in keywords
    }


class Log(BuiltIn):
    """Writes each request and its response or error as a line of JSON.

    The log hides headers, fields whose name suggests a secret, and the values of all secrets that this process knows.
    If the file becomes unwritable, the run continues without the log.
    """

    path: Path = Path(FILE_NAME)
    """Path of the file, relative to the run directory."""
    hide: list[str] = Field(default_factory=list)
    """Further fields whose values are hidden, at any depth, such as content."""
    max_bytes: int = Field(100_000_000, ge=1)
    """Maximum size of the file in bytes. Once the file has this size, requests are not logged."""

    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)
    _is_full: bool = PrivateAttr(False)

    def opened(self, folder: Path) -> Self:
        """Returns the log with its path below a folder, which may not exist yet.

        Raises ``ConfigError`` if the file is unwritable.
        """
        path = folder / self.path
        try:
            if path.parent != folder:
                path.resolve().open("ab").close()
        except OSError as error:
            raise ConfigError(f"middleware 'log': {str(path)!r} cannot be written: {error.strerror}") from error
        return self.model_copy(update={"path": path})

    def response(self, response: Response, request: Request) -> Response:
        self._write({"request": _told(request), "response": dump_message(response)})
        return response

    def failed(self, error: Exception, request: Request) -> None:
        self._write({"request": _told(request), "error": f"{type(error).__name__}: {error_text(error)}"})

    def _write(self, exchange: dict[str, Any]) -> None:
        if self._is_full:
            return
        told = {"at": round(time.time(), 3), **self._hidden(exchange)}
        options = orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
        try:
            line = hide_bytes(orjson.dumps(told, default=str, option=options))
            with self._lock, self.path.open("ab") as file:
                if file.tell() + len(line) <= self.max_bytes:
                    file.write(line)
                    return
            self._stop(f"the file has {self.max_bytes:,} bytes (max_bytes)")
        except (OSError, TypeError, ValueError) as error:
            self._stop(str(error))

    def _stop(self, why: str) -> None:
        self._is_full = True
        logger.warning("No more requests are written to %s: %s", self.path, why)

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                name: HIDDEN if self._is_secret(name) and each else self._hidden(each) for name, each in value.items()
            }
        return [self._hidden(each) for each in value] if isinstance(value, list | tuple) else value

    def _is_secret(self, name: Any) -> bool:
        return is_secret_name(name) or name == "extra_headers" or name in self.hide


def _told(request: Request) -> dict[str, Any]:
    columns = (request.state or {}).get("input") or {}
    return {
        "example_id": columns.get("example_id"),
        "rollout_index": columns.get("rollout_index"),
        "model": request.model,
        "messages": dump_messages(request.messages),
        "parameters": request.parameters,
        "tools": [dump_message(tool) for tool in request.tools or ()],
    }


BUILT_IN: dict[str, type[BuiltIn]] = {
    "drop": Drop,
    "rename": Rename,
    "payload": Payload,
    "system": System,
    "consolidate_system": ConsolidateSystem,
    "tools": Tools,
    "reasoning": Reasoning,
    "images": Images,
    "turn_limit": TurnLimit,
    "log": Log,
}
"""The built-in values of ``use``. Other values name the user's own classes."""
