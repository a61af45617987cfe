"""Errors of requests, with the names, fields and messages of the official SDKs' errors, whose import takes a second."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nightjar.clients.error_bodies import parsed, status_of, words_of


@dataclass(slots=True)
class HttpResponse:
    """A response as it arrived; ``headers`` ignores case, and ``content`` is unpacked."""

    url: str
    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


class APIError(Exception):
    """A request that failed. ``body`` is the error of the response: its JSON, its text, or None."""

    def __init__(self, message: str, body: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.body = body
        fields = body if isinstance(body, dict) else {}
        code = fields.get("code")
        self.code = None if code is None else str(code)
        self.param = fields.get("param")
        self.type = fields.get("type")


class APIConnectionError(APIError):
    """The endpoint cannot be reached."""


class APITimeoutError(APIConnectionError):
    """The endpoint did not respond in time."""

    def __init__(self) -> None:
        super().__init__("Request timed out.")


class APIStatusError(APIError):
    """The endpoint responded with an error."""

    def __init__(self, message: str, response: HttpResponse, body: Any = None) -> None:
        super().__init__(message, body)
        self.response = response
        self.status_code = response.status_code
        self.request_id = response.headers.get("x-request-id")


class APIResponseValidationError(APIStatusError):
    """The response is not what the protocol promises."""


class BadRequestError(APIStatusError):
    """Status 400."""


class AuthenticationError(APIStatusError):
    """Status 401: the endpoint rejects the key."""


class PermissionDeniedError(APIStatusError):
    """Status 403."""


class NotFoundError(APIStatusError):
    """Status 404: a wrong URL, or an unknown model."""


class ConflictError(APIStatusError):
    """Status 409."""


class UnprocessableEntityError(APIStatusError):
    """Status 422."""


class RateLimitError(APIStatusError):
    """Status 429."""


class InternalServerError(APIStatusError):
    """Status 500 and above."""


_OF_STATUS = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    422: UnprocessableEntityError,
    429: RateLimitError,
}


def status_error(response: HttpResponse, advice: str = "") -> APIStatusError:
    """Returns the error for a response with an error status. Its message has the provider's words."""
    status, body = response.status_code, parsed(response.content)
    words = words_of(body)
    message = f"Error code: {status} - {words}" if words else f"Error code: {status}"
    kind = _OF_STATUS.get(status) or (InternalServerError if status >= 500 else APIStatusError)  # noqa: PLR2004
    return kind(message + advice, response, body.get("error", body) if isinstance(body, dict) else body)


def error_of(found: Any, response: HttpResponse | None = None) -> APIStatusError:
    """Returns the error for an error object in a response with status 200: that of the status which it means."""
    content = json.dumps({"error": found}, default=str).encode()
    url, headers = (response.url, response.headers) if response else ("", {})
    return status_error(HttpResponse(url, status_of(found), headers, content))
