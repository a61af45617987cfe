"""The protocols that a model server speaks, in one shape for its routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nightjar.testing import anthropic_messages, chat_completions, completions, responses
from nightjar.testing.answers import Answer
from nightjar.testing.model_request import ApiError, Fields, ModelRequest


def _bearer_key(headers: Mapping[str, str]) -> str | None:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key if scheme == "Bearer" else None


def _x_api_key(headers: Mapping[str, str]) -> str | None:
    given = headers.get("x-api-key")
    return _bearer_key(headers) if given is None else given


@dataclass(frozen=True, slots=True)
class ModelProtocol:
    """How one kind of request is read, answered and refused.

    Attributes:
        path: where it is posted to.
        parse_request: reads a body; raises ``ApiError`` with status 400 where it cannot be served.
        answer_body: encodes an answer to a request; the number makes its id unique.
        error_body: encodes an error.
        overlong_error: what is wrong with a prompt of so many tokens where so many fit in.
        key: returns the API key that the headers carry.
        overloaded_status: the status of a server with too much to do.
        required_header: a header that must be there.
    """

    path: str
    parse_request: Callable[[Fields], ModelRequest]
    answer_body: Callable[[ModelRequest, Answer, int], bytes]
    error_body: Callable[[ApiError], bytes] = chat_completions.error_body
    overlong_error: Callable[[int, int], ApiError] = chat_completions.overlong_error
    key: Callable[[Mapping[str, str]], str | None] = _bearer_key
    overloaded_status: int = 503
    required_header: str | None = None


CHAT_COMPLETIONS = ModelProtocol(
    path="/v1/chat/completions",
    parse_request=chat_completions.parse_request,
    answer_body=chat_completions.answer_body,
)
PROTOCOLS = (
    CHAT_COMPLETIONS,
    ModelProtocol(
        path="/v1/chat/completions/tokens",
        parse_request=chat_completions.parse_token_request,
        answer_body=chat_completions.answer_body,
    ),
    ModelProtocol(path="/v1/completions", parse_request=completions.parse_request, answer_body=completions.answer_body),
    ModelProtocol(
        path="/v1/responses",
        parse_request=responses.parse_request,
        answer_body=responses.answer_body,
        overlong_error=responses.overlong_error,
    ),
    ModelProtocol(
        path="/v1/messages",
        parse_request=anthropic_messages.parse_request,
        answer_body=anthropic_messages.answer_body,
        error_body=anthropic_messages.error_body,
        overlong_error=anthropic_messages.overlong_error,
        key=_x_api_key,
        overloaded_status=anthropic_messages.OVERLOADED,
        required_header="anthropic-version",
    ),
)
"""All of them."""
