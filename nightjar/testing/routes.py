"""The HTTP routes of a model server.

================================  ======================================================
POST /v1/chat/completions         OpenAI's chat completions
POST /v1/responses                OpenAI's Responses API
POST /v1/completions              OpenAI's legacy text completions
POST /v1/messages                 Anthropic's messages
POST /v1/chat/completions/tokens  chat completions of a prompt in token ids, as vLLM's
POST /tokenize                    the token ids of messages or of a text, as vLLM's
GET /v1/models                    the models that it has
GET /health                       ``{"status": "ok"}``
GET /stats                        what it served; with ``?questions=1`` also how often it
                                  answered each
POST /stats/reset                 starts counting anew
================================  ======================================================
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools

import orjson
from aiohttp import web

from nightjar.errors import DatasetError
from nightjar.testing.answers import Answerer
from nightjar.testing.chat_completions import error_body, models_body, tokenize_body
from nightjar.testing.faults import Fate, FaultInjector, FaultKind, Faults
from nightjar.testing.model_request import ApiError, Fields, ModelRequest, read_fields
from nightjar.testing.protocols import CHAT_COMPLETIONS, PROTOCOLS, ModelProtocol
from nightjar.testing.recorded_requests import RequestLog
from nightjar.testing.server_stats import ServerStats

DEFAULT_MODEL = "local"
"""The model that a server lists which answers for any model."""

_SLOW_PIECES = 20
_ANY_SIZE = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Admission:
    """Which requests a server takes: with which key, for which model, of which length; None sets no bounds."""

    require_key: str | None = None
    only_model: str | None = None
    max_context_tokens: int | None = None

    def check_headers(self, request: web.Request, protocol: ModelProtocol) -> None:
        """Raises ``ApiError`` where the key is wrong or a header is missing that the protocol requires."""
        if self.require_key is not None and protocol.key(request.headers) != self.require_key:
            raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")
        if protocol.required_header is not None and protocol.required_header not in request.headers:
            raise ApiError(400, f"{protocol.required_header}: header is required")

    def check_request(self, asked: ModelRequest, protocol: ModelProtocol) -> None:
        """Raises ``ApiError`` where there is no such model, or the prompt is too long."""
        if self.only_model is not None and asked.model != self.only_model:
            problem = f"The model {asked.model!r} does not exist. There is {self.only_model!r}."
            raise ApiError(404, problem, code="model_not_found", param="model")
        if self.max_context_tokens is not None and asked.prompt_tokens > self.max_context_tokens:
            raise protocol.overlong_error(asked.prompt_tokens, self.max_context_tokens)


class Routes:
    """Answers requests, and counts them; what goes wrong on the way is drawn from ``faults``."""

    def __init__(self, answerer: Answerer, faults: Faults, admission: Admission, log: RequestLog) -> None:
        self.stats = ServerStats()
        self._answerer = answerer
        self._faults = faults
        self._injector = FaultInjector(faults)
        self._admission = admission
        self._log = log
        self._numbers = itertools.count(1)

    def application(self) -> web.Application:
        """Builds the web application of these routes."""
        app = web.Application(client_max_size=_ANY_SIZE)
        app.add_routes(
            [
                *(web.post(protocol.path, functools.partial(self.ask_model, protocol)) for protocol in PROTOCOLS),
                web.post("/tokenize", self.tokenize),
                web.get("/v1/models", self.models),
                web.get("/health", self.health),
                web.get("/stats", self.show_stats),
                web.post("/stats/reset", self.reset_stats),
                web.route("*", "/{path:.*}", self.unknown),
            ]
        )
        return app

    async def ask_model(self, protocol: ModelProtocol, request: web.Request) -> web.StreamResponse:
        """Answers a request to the model."""
        self.stats.count_arrival()
        try:
            return await self._serve(request, protocol)
        except ApiError as error:
            self.stats.refused += 1
            return _error(error, protocol)
        except ConnectionError:
            self.stats.abandoned += 1
            return web.Response()
        except asyncio.CancelledError:
            self.stats.abandoned += 1
            raise
        finally:
            self.stats.in_flight -= 1

    async def tokenize(self, request: web.Request) -> web.StreamResponse:
        """Says which token ids messages or a text have."""
        try:
            fields = await self._fields(request, CHAT_COMPLETIONS)
            return _json(tokenize_body(fields, self._admission.max_context_tokens))
        except ApiError as error:
            return _error(error, CHAT_COMPLETIONS)

    async def models(self, request: web.Request) -> web.StreamResponse:
        """Lists the models."""
        try:
            self._admission.check_headers(request, CHAT_COMPLETIONS)
        except ApiError as error:
            return _error(error, CHAT_COMPLETIONS)
        return _json(models_body([self._admission.only_model or DEFAULT_MODEL]))

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
        return _json(error_body(ApiError(404, message, code="unknown_url")), 404)

    async def _serve(self, request: web.Request, protocol: ModelProtocol) -> web.StreamResponse:
        asked = protocol.parse_request(await self._fields(request, protocol))
        self._admission.check_request(asked, protocol)
        fate = self._injector.draw()
        if fate.fault is None or fate.fault is FaultKind.SLOW:
            return await self._answer(request, protocol, asked, fate)
        await asyncio.sleep(fate.latency_seconds)
        self.stats.faults[fate.fault] += 1
        return self._fail(request, protocol, fate.fault, fate.retry_after_seconds)

    async def _fields(self, request: web.Request, protocol: ModelProtocol) -> Fields:
        self._admission.check_headers(request, protocol)
        fields = read_fields(await request.read())
        if self._log.is_on:
            self._log.add(request.path, request.headers, fields)
        return fields

    async def _answer(
        self, request: web.Request, protocol: ModelProtocol, asked: ModelRequest, fate: Fate
    ) -> web.StreamResponse:
        try:
            answer = self._answerer.answer(asked.messages)
        except DatasetError as error:
            raise ApiError(400, str(error), code="unknown_question", param="messages") from error
        await asyncio.sleep(fate.latency_seconds)
        body = protocol.answer_body(asked, answer, next(self._numbers))
        if fate.fault is FaultKind.SLOW:
            self.stats.faults[FaultKind.SLOW] += 1
            response = await _send_slowly(request, body, self._faults.slow_seconds)
        else:
            response = await _send(request, body)
        self.stats.count_answer(answer.question)
        return response

    def _fail(self, request: web.Request, protocol: ModelProtocol, fault: FaultKind, wait: int | None) -> web.Response:
        if fault is FaultKind.RATE_LIMITED:
            refusal = ApiError(429, "Rate limit reached.", kind="requests", code="rate_limit_exceeded")
            return _error(refusal, protocol, wait)
        if fault is FaultKind.OVERLOADED:
            return _error(ApiError(protocol.overloaded_status, "Overloaded", kind="server_error"), protocol, wait)
        if fault is FaultKind.SERVER_ERROR:
            return _error(ApiError(500, "The server had an error.", kind="server_error"), protocol)
        if fault is FaultKind.DROPPED:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        return _json(b'{"id": "chatcmpl-')


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _error(error: ApiError, protocol: ModelProtocol, retry_after_seconds: int | None = None) -> web.Response:
    response = _json(protocol.error_body(error), error.status)
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
