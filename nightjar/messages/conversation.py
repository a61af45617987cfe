"""What a conversation is made of: messages of several roles, their parts, and tool calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

from nightjar.messages.dict_model import DictModel


class TextContentPart(DictModel):
    """A text inside a message of several parts."""

    type: Literal["text"] = "text"
    text: str


class ImageUrlSource(DictModel):
    """Where an image is: an ``https:`` or ``data:`` URL."""

    url: str


class ImageUrlContentPart(DictModel):
    """An image inside a message.

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
    """Audio inside a message."""

    type: Literal["input_audio"] = "input_audio"
    input_audio: InputAudioSource


class GenericContentPart(DictModel):
    """A part of a kind that Nightjar does not know; passed on as it is."""

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
        """Returns a system message with a file's text as it is, UTF-8.

        Example:
            >>> _ = Path("prompt.txt").write_text("Be brief.")
            >>> SystemMessage.from_path("prompt.txt").content
            'Be brief.'
        """
        return cls(content=Path(path).read_text(encoding="utf-8"))


class UserMessage(DictModel):
    """What the user, or the environment, says."""

    role: Literal["user"] = "user"
    content: MessageContent


class ToolCall(DictModel):
    """A call that the model asks for; ``arguments`` is JSON text, as the model wrote it."""

    id: str
    name: str
    arguments: str


class AssistantMessage(DictModel):
    """What the model says: text, reasoning, tool calls, or several of them."""

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
    """Plain text: the only message of a text completion; a chat endpoint is given it as the user's."""

    role: Literal["text"] = "text"
    content: str


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage | TextMessage
Messages: TypeAlias = list[Message]
ChatMessage: TypeAlias = Message
