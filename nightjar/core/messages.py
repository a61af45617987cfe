"""Chat messages, tools and responses. Messages also work like dicts, and keep unknown fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nightjar.core.text import shortened
from nightjar.errors import ConfigError

_LONGEST_SHOWN = 500
_ATOMS = frozenset({str, int, bool, type(None)})
_LIST_TYPES = (list, Sequence)
_RAW_TYPES = (dict, Mapping, BaseModel)


class DictModel(BaseModel):
    """A pydantic model that also works like a dict. In comparisons with a dict, None counts as missing.

    Example:
        >>> message = UserMessage(content="Hello")
        >>> message["content"], "role" in message, message == {"role": "user", "content": "Hello"}
        ('Hello', True, True)
    """

    model_config = ConfigDict(extra="allow")

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self, key)
        except AttributeError:
            raise KeyError(key) from None

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (key in type(self).model_fields or key in (self.model_extra or {}))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            return bool(_plain(self) == _plain(other))
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)

    def keys(self) -> Iterable[str]:
        return [*type(self).model_fields, *(self.model_extra or {})]


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


class TextContentPart(DictModel):
    """A text in a message of several parts."""

    type: Literal["text"] = "text"
    text: str


class ImageUrlSource(DictModel):
    """The ``https:`` or ``data:`` URL of an image."""

    url: str


class ImageUrlContentPart(DictModel):
    """An image in a message.

    Example:
        >>> map_of_paris = ImageUrlContentPart(image_url={"url": "https://example.com/map.png"})
        >>> UserMessage(content=[map_of_paris, {"type": "text", "text": "Where is this?"}]).content[0].type
        'image_url'
    """

    type: Literal["image_url"] = "image_url"
    image_url: ImageUrlSource


class InputAudioSource(DictModel):
    """Audio as base64 text, and its format (``wav``, ``mp3``)."""

    data: str
    format: str


class InputAudioContentPart(DictModel):
    """Audio in a message."""

    type: Literal["input_audio"] = "input_audio"
    input_audio: InputAudioSource


class GenericContentPart(DictModel):
    """A part of a kind that Nightjar does not know, passed on unchanged."""

    type: str


MessageType: TypeAlias = Literal["chat", "completion"]
ContentPart: TypeAlias = (
    TextContentPart | ImageUrlContentPart | InputAudioContentPart | GenericContentPart | dict[str, Any]
)
MessageContent: TypeAlias = str | list[ContentPart]


class SystemMessage(DictModel):
    """Instructions to the model."""

    role: Literal["system"] = "system"
    content: MessageContent

    @classmethod
    def from_path(cls, path: str | Path) -> SystemMessage:
        """Returns a system message with the text of a file (UTF-8)."""
        return cls(content=Path(path).read_text(encoding="utf-8"))


class UserMessage(DictModel):
    """A message of the user or the environment."""

    role: Literal["user"] = "user"
    content: MessageContent


class ToolCall(DictModel):
    """A tool call of the model. ``arguments`` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class AssistantMessage(DictModel):
    """A message of the model: text, reasoning, tool calls, or several of these."""

    role: Literal["assistant"] = "assistant"
    content: MessageContent | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[dict[str, Any]] | None = None
    tool_calls: list[ToolCall] | None = None


class ToolMessage(DictModel):
    """The result of a tool call."""

    role: Literal["tool"] = "tool"
    tool_call_id: str
    content: MessageContent


class TextMessage(DictModel):
    """Plain text, the only message of a text completion. Chat endpoints get this text as a user message."""

    role: Literal["text"] = "text"
    content: str


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage | TextMessage
Messages: TypeAlias = list[Message]
ChatMessage: TypeAlias = Message

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="role")])
_MESSAGE_TYPES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage, TextMessage)


class Tool(DictModel):
    """A tool that the model may call. ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool | None = None


class Usage(DictModel):
    """Token counts of one model call."""

    prompt_tokens: int
    reasoning_tokens: int
    completion_tokens: int
    total_tokens: int


class ResponseTokens(DictModel):
    """Token ids of one model call, if the endpoint returns them."""

    prompt_ids: list[int]
    prompt_mask: list[int]
    completion_ids: list[int]
    completion_mask: list[int]
    completion_logprobs: list[float]
    routed_experts: list[list[list[int]]] | None = None


class TextLogprobs(DictModel):
    """Natural log probabilities of a completion's tokens; with ``echo``, after the prompt's.

    Offsets are in characters.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None


FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"] | None


class ResponseMessage(AssistantMessage):
    """The assistant message of a response, and why the response ended."""

    finish_reason: FinishReason
    is_truncated: bool | None
    tokens: ResponseTokens | None = None


class Response(DictModel):
    """One response of a model, in the same form for every protocol.

    ``is_cached`` means that it came unpaid from the cache.
    """

    id: str
    created: int
    model: str
    usage: Usage | None = None
    message: ResponseMessage
    logprobs: TextLogprobs | None = None
    is_cached: bool = False


def from_raw_message(message: Mapping[str, Any]) -> Message:
    """Converts a dict to a message, or raises ``ConfigError``. Tool calls may be nested as in OpenAI's format."""
    if not isinstance(message, _RAW_TYPES):
        raise ConfigError(
            f"A chat message must be a dict or a message object, found {shortened(repr(message), _LONGEST_SHOWN)}"
        )
    raw = dict(message)
    if raw.get("tool_calls"):
        raw["tool_calls"] = [_flat_tool_call(call) for call in raw["tool_calls"]]
    try:
        return _MESSAGE.validator.validate_python(raw)  # type: ignore[no-any-return]
    except ValidationError as error:
        found = error.errors()[0]
        problem = ": ".join(part for part in (".".join(map(str, found["loc"])), found["msg"]) if part)
        raise ConfigError(f"{shortened(repr(raw), _LONGEST_SHOWN)} is not a chat message: {problem}") from error


def _flat_tool_call(call: Any) -> Any:
    if isinstance(call, Mapping):
        flat = {"id": call.get("id"), **call["function"]} if "function" in call else dict(call)
        if isinstance(flat.get("arguments"), Mapping):
            flat["arguments"] = json.dumps(flat["arguments"])
        return flat
    return call


def normalize_messages(value: Any, *, field_name: str = "messages") -> Messages:
    """Converts a text or dicts to messages. Messages are not copied. Errors name ``field_name``."""
    if isinstance(value, str):
        return [TextMessage(content=value)]
    if not isinstance(value, _LIST_TYPES):
        raise ConfigError(
            f"{field_name} must be a text or a list of messages, found {shortened(repr(value), _LONGEST_SHOWN)}"
        )
    return [
        item if type(item) in _MESSAGE_TYPES or isinstance(item, _MESSAGE_TYPES) else from_raw_message(item)
        for item in value
    ]


def concat_messages(parts: Iterable[str | Sequence[Any]]) -> Messages:
    return [message for part in parts for message in normalize_messages(part)]


def content_text(content: Any) -> str:
    """Returns the text of a message's content. Several parts are joined by a space."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in content if part.get("type") == "text")
    return " ".join(text for text in texts if text)


def dump_message(message: Any) -> Any:
    if not _is_model(message.__class__):
        return message
    if not message.__pydantic_extra__:
        plain = {}
        for name, value in message.__dict__.items():
            if type(value) not in _ATOMS:
                break
            if value is not None:
                plain[name] = value
        else:
            return plain  # like model_dump, in a fifth of the time
    return message.model_dump(mode="json", exclude_none=True)


@lru_cache(maxsize=256)
def _is_model(kind: type[Any]) -> bool:
    return issubclass(kind, BaseModel)


def dump_messages(messages: Any) -> Any:
    if messages is None or isinstance(messages, str):
        return messages
    return [dump_message(message) for message in messages]
