"""Messages as Anthropic writes them.

See https://docs.anthropic.com/en/api/messages: there are users and assistants only. The system prompt is apart, the
results of all tools that one turn called are one message of the user, and thinking must be sent back as it came.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

from nightjar.clients.answers import field_of
from nightjar.messages import Message, content_text, dump_message

Block: TypeAlias = dict[str, Any]

ANTHROPIC_CONTENT_FIELD = "anthropic_content"
"""The field of a message that keeps what the model said, where thinking, text and tool calls alone do not hold it."""

_AUDIO = "[audio]"
_NO_OBJECT = "INVALID_JSON"  # the key that Anthropic's pages suggest
_DEFAULT_MEDIA_TYPE = "image/png"


def native_prompt(messages: Sequence[Message]) -> tuple[list[dict[str, Any]], str]:
    """Returns the conversation without its system messages, and these as one text."""
    system: list[str] = []
    prompt: list[dict[str, Any]] = []
    results: list[Block] | None = None
    for message in messages:
        if message.role == "system":
            system.append(_plain_text(message.content))
        elif message.role == "tool":
            if results is None:
                results = []
                prompt.append({"role": "user", "content": results})
            results.append(_tool_result(message))
        else:
            results = None
            prompt += _turn(message)
    return prompt, "\n\n".join(system)


def _turn(message: Any) -> list[dict[str, Any]]:
    """Returns a turn as a list of one message; an empty list for a model's turn without anything in it."""
    if message.role != "assistant":
        return [{"role": "user", "content": _native_content(message.content)}]
    content = _model_turn(message)
    return [{"role": "assistant", "content": content}] if content else []


def _model_turn(message: Any) -> str | list[Block]:
    if kept := _kept_content(message):
        return kept
    thinking = [block for block in message.thinking_blocks or () if _is_whole_thinking(block)]
    if not (thinking or message.tool_calls):
        return message.content if isinstance(message.content, str) else _plain_text(message.content)
    texts = [{"type": "text", "text": text} for text in _texts(message.content)]
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call.arguments)}
        for call in message.tool_calls or ()
    ]
    return [*thinking, *texts, *calls]


def _kept_content(message: Any) -> list[Block] | None:
    """Returns what the model said as it came; None where the environment has changed the message since."""
    kept: list[Block] | None = (message.model_extra or {}).get(ANTHROPIC_CONTENT_FIELD)
    if not kept:
        return None
    said = "".join(block["text"] for block in kept if block["type"] == "text")
    calls = [block["id"] for block in kept if block["type"] == "tool_use"]
    is_unchanged = said == content_text(message.content) and calls == [call.id for call in message.tool_calls or ()]
    return kept if is_unchanged else None


def _is_whole_thinking(block: Any) -> bool:
    """Says whether a block can be sent back: thinking with its signature, even without its text; or hidden thinking."""
    kind = field_of(block, "type")
    if kind == "thinking":
        return isinstance(field_of(block, "thinking"), str) and bool(field_of(block, "signature"))
    return bool(kind == "redacted_thinking" and field_of(block, "data"))


def _arguments(text: str) -> dict[str, Any]:
    """Reads a tool call's arguments; the protocol takes objects only, so that anything else is put into one."""
    try:
        arguments = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {_NO_OBJECT: text}


def _tool_result(message: Any) -> Block:
    content = _native_content(message.content)
    if not isinstance(content, str) and all(block["type"] == "text" for block in content):
        content = " ".join(block["text"] for block in content)
    return {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}


def _native_content(content: Any) -> str | list[Block]:
    return content if isinstance(content, str) else _blocks(content)


def _blocks(content: Any) -> list[Block]:
    """Returns a content as blocks; empty texts are left out, as the API refuses them."""
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks = [_block(dump_message(part)) for part in content]
    return [block for block in blocks if block.get("text") != ""]


def _block(part: dict[str, Any]) -> Block:
    kind = part.get("type")
    if kind == "image_url":
        return {"type": "image", "source": _image_source(part["image_url"]["url"])}
    if kind == "input_audio":
        return {"type": "text", "text": _AUDIO}
    return part


def _image_source(url: str) -> dict[str, Any]:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    head, _, data = url.removeprefix("data:").partition(",")
    media_type, *flags = head.split(";")
    if "base64" not in flags:
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return {"type": "base64", "media_type": media_type or _DEFAULT_MEDIA_TYPE, "data": data}


def _plain_text(content: Any) -> str:
    return " ".join(_texts(content))


def _texts(content: Any) -> list[str]:
    """Returns the texts of a content, with a word in the place of what is no text: ``[image]``."""
    return [block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in _blocks(content)]
