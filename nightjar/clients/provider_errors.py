"""What providers' errors mean, read from what all SDKs' errors have in common.

The SDKs of OpenAI and Anthropic are made by the same generator: their errors have the same class names, a
``status_code``, a ``message`` and the ``response``. So nothing here needs to import an SDK.
"""

from __future__ import annotations

import json
from typing import Any

from nightjar.clients.credentials import DISTINCTIVE_KEY_LENGTH, HIDDEN_KEY
from nightjar.errors import InvalidModelResponseError, OverlongPromptError, error_chain

_REJECTED_CREDENTIALS = frozenset({"AuthenticationError", "PermissionDeniedError"})
_UNREADABLE_ANSWERS = frozenset({"APIResponseValidationError"})
_OVERLONG_STATUSES = frozenset({400, 413})

OVERLONG_PHRASES = (
    "this model's maximum context length is",
    "is longer than the model's context length",
    "is longer than the maximum model length",
    "exceeds the model's context length",
    "exceed the configured limit",
    "exceeds the configured limit",
    "exceeded model",
    "prompt_too_long",
    "prompt is too long",
    "input is too long",
    "context length",
    "context_length_exceeded",
    "maximum context",
    "maximum model length",
    "exceed context limit",
    "exceeds context limit",
    "exceeds the context window",
    "too many total text bytes",
)
"""How providers say that a prompt is too long, in lower case; the protocols have no code for it."""


def has_rejected_credentials(error: BaseException) -> bool:
    """Says whether the endpoint does not accept the key: no further request can succeed."""
    return type(error).__name__ in _REJECTED_CREDENTIALS


class key_hidden:  # noqa: N801 - used like a function; as a generator it would cost each request a microsecond
    """Takes the key of an SDK client that the user made out of what errors and their causes say: servers echo it."""

    __slots__ = ("_sdk_client",)

    def __init__(self, sdk_client: Any) -> None:
        self._sdk_client = sdk_client

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception):
            key = getattr(self._sdk_client, "api_key", None)
            if isinstance(key, str) and len(key) >= DISTINCTIVE_KEY_LENGTH:
                _hide(key, error)


def _hide(key: str, error: Exception) -> None:
    for cause in error_chain(error):
        cause.args = tuple(arg.replace(key, HIDDEN_KEY) if isinstance(arg, str) else arg for arg in cause.args)
        if isinstance(message := getattr(cause, "message", None), str):
            cause.message = message.replace(key, HIDDEN_KEY)  # type: ignore[attr-defined]  # of the SDK's errors


class provider_errors:  # noqa: N801 - as key_hidden
    """Gives errors of an SDK the names that Nightjar has for them, and lets the others through.

    Raises:
        OverlongPromptError: the endpoint says that the prompt is too long.
        InvalidModelResponseError: the answer is not what the protocol promises.
    """

    __slots__ = ("_model",)

    def __init__(self, model: str) -> None:
        self._model = model

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, json.JSONDecodeError):
            raise InvalidModelResponseError(f"Model {self._model!r} answered with what is no JSON: {error}") from error
        if type(error).__name__ in _UNREADABLE_ANSWERS:
            raise InvalidModelResponseError(f"Model {self._model!r} answered {_message(error)}") from error
        if _says_overlong(error):
            raise OverlongPromptError(f"Model {self._model!r}: {_message(error)}") from error


def _says_overlong(error: Any) -> bool:
    if getattr(error, "status_code", None) not in _OVERLONG_STATUSES:
        return False
    text = f"{_message(error)} {getattr(getattr(error, 'response', None), 'text', '')}".lower()
    return any(phrase in text for phrase in OVERLONG_PHRASES)


def _message(error: Any) -> str:
    return str(getattr(error, "message", error))
