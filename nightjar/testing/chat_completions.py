"""OpenAI's chat completions as a server sees them: requests in, bodies out.

The shapes are those of https://platform.openai.com/docs/api-reference/chat. A token is a word here:
a run of characters without blanks.
"""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import dataclass
from typing import Any

import orjson

from nightjar.testing.answers import Message, message_text

_WORD = re.compile(r"\S+")


class ApiError(Exception):
    """An answer other than 200, with the fields of OpenAI's error body.

    It stays inside the server, so it is no NightjarError.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param

    def body(self) -> bytes:
        """Encodes the error body."""
        return orjson.dumps(
            {
                "error": {
                    "message": self.message,
                    "type": self.kind,
                    "param": self.param,
                    "code": self.code,
                }
            }
        )


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What matters of a request for a chat completion.

    Attributes:
        model: the model that is asked for.
        messages: the conversation, at least one message.
        max_tokens: the most tokens an answer may have; None means no limit.
    """

    model: str
    messages: list[Message]
    max_tokens: int | None


def parse_request(body: bytes) -> ChatRequest:
    """Reads a request body; sampling parameters that cannot change the answer are ignored.

    Raises:
        ApiError: the body is not a request that can be served, status 400.
    """
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"The body is not valid JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise ApiError(400, "The body is not a JSON object.")
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise ApiError(400, "You must provide a model.", param="model")
    if fields.get("stream"):
        raise ApiError(400, "This server does not stream.", param="stream")
    if fields.get("n") not in (None, 1):
        raise ApiError(400, "This server gives one choice; n must be 1.", param="n")
    return ChatRequest(model, _parse_messages(fields.get("messages")), _parse_max_tokens(fields))


def _parse_messages(messages: Any) -> list[Message]:
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "'messages' must be a list that is not empty.", param="messages")
    for position, message in enumerate(messages):
        if not _is_message(message):
            raise ApiError(
                400,
                "A message needs a role and, as its content, text or a list of parts.",
                param=f"messages[{position}]",
            )
    return messages


def _is_message(message: Any) -> bool:
    match message:
        case {"role": str(), "content": list(parts)}:
            return all(_is_part(part) for part in parts)
        case {"role": str()}:
            return isinstance(message.get("content"), str | None)
    return False


def _is_part(part: Any) -> bool:
    match part:
        case {"type": "text"}:
            return isinstance(part.get("text"), str)
        case {"type": str()}:
            return True
    return False


def _parse_max_tokens(fields: dict[str, Any]) -> int | None:
    for param in ("max_completion_tokens", "max_tokens"):
        limit = fields.get(param)
        if limit is None:
            continue
        if type(limit) is not int or limit < 1:
            raise ApiError(400, f"{param!r} must be a positive integer.", param=param)
        return limit
    return None


def completion_body(request: ChatRequest, text: str, number: int) -> bytes:
    """Encodes the completion of a request, cut to its ``max_tokens``.

    Args:
        request: what was asked.
        text: the whole answer.
        number: makes the completion's id unique.
    """
    count = len(text.split())
    finish_reason = "stop"
    if request.max_tokens is not None and count > request.max_tokens:
        count = request.max_tokens
        finish_reason = "length"
        text = _first_words(text, count)
    prompt_tokens = sum(len(message_text(message).split()) for message in request.messages)
    return orjson.dumps(
        {
            "id": f"chatcmpl-{number:08x}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request.model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": finish_reason,
                }
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": count,
                "total_tokens": prompt_tokens + count,
            },
        }
    )


def _first_words(text: str, count: int) -> str:
    last = next(itertools.islice(_WORD.finditer(text), count - 1, None))
    return text[: last.end()]


def models_body(models: list[str]) -> bytes:
    """Encodes the list of models."""
    return orjson.dumps(
        {
            "object": "list",
            "data": [{"id": model, "object": "model", "created": 0, "owned_by": "nightjar"} for model in models],
        }
    )
