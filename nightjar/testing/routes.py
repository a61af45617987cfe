"""The HTTP routes of a model server.

=========================  ========================================================
POST /v1/chat/completions  answers; see https://platform.openai.com/docs/api-reference/chat
GET /v1/models             the models that it has
GET /health                ``{"status": "ok"}``
GET /stats                 what it served; with ``?questions=1`` also how often it answered each
POST /stats/reset          starts counting anew
=========================  ========================================================
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools

import orjson
from aiohttp import web

from nightjar.errors import DatasetError
from nightjar.testing.answers import Answerer
from nightjar.testing.chat_completions import (
    ApiError,
    ChatRequest,
    completion_body,
    models_body,
    parse_request,
)
from nightjar.testing.faults import Fate, FaultInjector, FaultKind, Faults
from nightjar.testing.server_stats import ServerStats

DEFAULT_MODEL = "local"
"""The model that a server lists which answers for any model."""

_SLOW_PIECES = 20
_ANY_SIZE = 0


class Routes:
    """Answers requests, and counts them.

    Args:
        answerer: what to answer.
        faults: what goes wrong on the way.
        require_key: the API key that requests must carry; None takes any or none.
        only_model: the one model that there is; None answers for every name.
    """

    def __init__(self, answerer: Answerer, faults: Faults, require_key: str | None, only_model: str | None) -> None:
        self.stats = ServerStats()
        self._answerer = answerer
        self._faults = faults
        self._injector = FaultInjector(faults)
        self._require_key = require_key
        self._only_model = only_model
        self._numbers = itertools.count(1)

    def application(self) -> web.Application:
        """Builds the web application of these routes."""
        app = web.Application(client_max_size=_ANY_SIZE)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self.chat_completions),
                web.get("/v1/models", self.models),
                web.get("/health", self.health),
                web.get("/stats", self.show_stats),
                web.post("/stats/reset", self.reset_stats),
                web.route("*", "/{path:.*}", self.unknown),
            ]
        )
        return app

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        """Answers a request for a chat completion."""
        self.stats.count_arrival()
        try:
            return await self._serve(request)
        except ApiError as error:
            self.stats.refused += 1
            return _error(error)
        except ConnectionError:
            self.stats.abandoned += 1
            return web.Response()
        except asyncio.CancelledError:
            self.stats.abandoned += 1
            raise
        finally:
            self.stats.in_flight -= 1

    async def models(self, request: web.Request) -> web.StreamResponse:
        """Lists the models."""
        try:
            self._check_key(request)
        except ApiError as error:
            return _error(error)
        return _json(models_body([self._only_model or DEFAULT_MODEL]))

    async def health(self, _request: web.Request) -> web.StreamResponse:
        """Says that the server is up."""
        return _json(b'{"status":"ok"}')

    async def show_stats(self, request: web.Request) -> web.StreamResponse:
        """Shows what was served."""
        fields = {field.name: getattr(self.stats, field.name) for field in dataclasses.fields(self.stats)}
        if request.query.get("questions", "0") in ("", "0"):
            del fields["questions"]
        return _json(orjson.dumps(fields, option=orjson.OPT_NON_STR_KEYS))

    async def reset_stats(self, _request: web.Request) -> web.StreamResponse:
        """Starts counting anew."""
        self.stats.reset()
        return web.Response(status=204)

    async def unknown(self, request: web.Request) -> web.StreamResponse:
        """Refuses any other request."""
        message = f"Unknown request: {request.method} {request.path}. The base URL ends in /v1."
        return _error(ApiError(404, message, code="unknown_url"))

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self._check_key(request)
        chat = parse_request(await request.read())
        self._check_model(chat.model)
        fate = self._injector.draw()
        if fate.fault is None or fate.fault is FaultKind.SLOW:
            return await self._answer(request, chat, fate)
        await asyncio.sleep(fate.latency_seconds)
        self.stats.faults[fate.fault] += 1
        return self._fail(request, fate.fault)

    async def _answer(self, request: web.Request, chat: ChatRequest, fate: Fate) -> web.StreamResponse:
        try:
            answer = self._answerer.answer(chat.messages)
        except DatasetError as error:
            raise ApiError(400, str(error), code="unknown_question", param="messages") from error
        await asyncio.sleep(fate.latency_seconds)
        body = completion_body(chat, answer.text, next(self._numbers))
        if fate.fault is FaultKind.SLOW:
            self.stats.faults[FaultKind.SLOW] += 1
            response = await _send_slowly(request, body, self._faults.slow_seconds)
        else:
            response = await _send(request, body)
        self.stats.count_answer(answer.question)
        return response

    def _fail(self, request: web.Request, fault: FaultKind) -> web.Response:
        if fault is FaultKind.RATE_LIMITED:
            error = ApiError(429, "Rate limit reached.", kind="requests", code="rate_limit_exceeded")
            return _error(error, self._faults.retry_after_seconds)
        if fault is FaultKind.SERVER_ERROR:
            return _error(ApiError(500, "The server had an error.", kind="server_error"))
        if fault is FaultKind.DROPPED:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        return _json(b'{"id": "chatcmpl-')

    def _check_key(self, request: web.Request) -> None:
        given = request.headers.get("Authorization")
        if self._require_key is not None and given != f"Bearer {self._require_key}":
            raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")

    def _check_model(self, model: str) -> None:
        if self._only_model is not None and model != self._only_model:
            raise ApiError(
                404,
                f"The model {model!r} does not exist. There is {self._only_model!r}.",
                code="model_not_found",
                param="model",
            )


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _error(error: ApiError, retry_after_seconds: int | None = None) -> web.Response:
    response = _json(error.body(), error.status)
    if retry_after_seconds is not None:
        response.headers["Retry-After"] = str(retry_after_seconds)
    return response


async def _send(request: web.Request, body: bytes) -> web.StreamResponse:
    response = _json(body)
    await response.prepare(request)
    await response.write_eof()
    return response


async def _send_slowly(request: web.Request, body: bytes, seconds: float) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(body)
    await response.prepare(request)
    size = -(-len(body) // _SLOW_PIECES)
    for start in range(0, len(body), size):
        await asyncio.sleep(seconds / _SLOW_PIECES)
        await response.write(body[start : start + size])
    await response.write_eof()
    return response
