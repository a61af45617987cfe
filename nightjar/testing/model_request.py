"""What a model is asked, and what a server refuses, the same for every protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from nightjar.testing.answers import Message

Fields = dict[str, Any]
"""A request's body."""


class ApiError(Exception):
    """An answer other than 200, which each protocol encodes in its own way; it never leaves the server.

    ``kind`` and ``code`` are OpenAI's; ``param`` is the part of the request that is wrong, where there is one.
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


@dataclass(slots=True)
class ModelRequest:
    """What matters of a request to the model.

    Attributes:
        model: the model that is asked for.
        messages: the conversation as chat messages, at least one.
        max_tokens: the most tokens an answer may have; None means no limit.
        prompt_tokens: how many tokens the conversation has.
        fields: the whole body, for what only one protocol knows.
        prompt_ids: the tokens of the prompt, where the request asks for token ids.
    """

    model: str
    messages: list[Message]
    max_tokens: int | None
    prompt_tokens: int
    fields: Fields
    prompt_ids: list[int] | None = None


def read_fields(body: bytes) -> Fields:
    """Reads a request's body; raises ``ApiError`` where it is not a JSON object."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"The body is not valid JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise ApiError(400, "The body is not a JSON object.")
    return fields


def parse_model(fields: Fields) -> str:
    """Returns the model that is asked for; ``ApiError`` where there is none, or this server cannot do what is asked."""
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise ApiError(400, "You must provide a model.", param="model")
    if fields.get("stream"):
        raise ApiError(400, "This server does not stream.", param="stream")
    if fields.get("n") not in (None, 1):
        raise ApiError(400, "This server gives one choice; n must be 1.", param="n")
    return model


def parse_limit(fields: Fields, *params: str) -> int | None:
    """Returns the most tokens an answer may have, from the first of these fields that is there."""
    for param in params:
        limit = fields.get(param)
        if limit is None:
            continue
        if type(limit) is not int or limit < 1:
            raise ApiError(400, f"{param!r} must be a positive integer.", param=param)
        return limit
    return None
