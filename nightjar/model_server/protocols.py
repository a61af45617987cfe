"""The protocols of a model server. To add a protocol, add a row to ``PROTOCOLS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nightjar.model_server import anthropic_messages, chat_completions, completions, responses
from nightjar.model_server.answers import Answer
from nightjar.model_server.model_request import ApiError, Fields, ModelRequest


def _bearer_key(headers: Mapping[str, str]) -> str | None:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key if scheme == "Bearer" else None


def _x_api_key(headers: Mapping[str, str]) -> str | None:
    given = headers.get("x-api-key")
    return _bearer_key(headers) if given is None else given


@dataclass(frozen=True, slots=True)
class ModelProtocol:
    """A protocol of the model server; the number in ``answer_body`` makes the id of the response unique."""

    path: str
    parse_request: Callable[[Fields], ModelRequest]
    answer_body: Callable[[ModelRequest, Answer, int], bytes]
    error_body: Callable[[ApiError], bytes] = chat_completions.error_body
    overlong_error: Callable[[int, int], ApiError] = chat_completions.overlong_error
    key: Callable[[Mapping[str, str]], str | None] = _bearer_key
    overloaded_status: int = 503
    required_header: str | None = None


CHAT_COMPLETIONS = ModelProtocol(
    path="/v1/chat/completions", parse_request=chat_completions.parse_request, answer_body=chat_completions.answer_body
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
