"""A model server on loopback, for tests and for trying things out without a provider.

The server runs in a background thread of this process and speaks real HTTP::

    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=200)) as server:
        client = openai.AsyncOpenAI(base_url=server.base_url, api_key="any")
        ...
        assert server.stats().answered == 1

``nightjar model-server`` runs a server in its own process.

================================  =========================================================
POST /v1/chat/completions         OpenAI's chat completions
POST /v1/responses                OpenAI's Responses API
POST /v1/completions              OpenAI's legacy text completions
POST /v1/messages                 Anthropic's messages
POST /v1/chat/completions/tokens  chat completions of a prompt in token ids, as in vLLM
POST /tokenize                    the token ids of messages or of a text, as in vLLM
GET /v1/models                    the models of the server
GET /health                       ``{"status": "ok"}``
GET /stats                        the counts; ``?questions=1`` adds the count of each question
POST /stats/reset                 resets the counts
================================  =========================================================
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import functools
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Self, TypeVar

import orjson
from aiohttp import web
from anyio.from_thread import BlockingPortal, start_blocking_portal

from nightjar.errors import ConfigError, DatasetError, ServiceError
from nightjar.model_server.answers import Answerer
from nightjar.model_server.chat_completions import error_body, models_body, tokenize_body
from nightjar.model_server.faults import Fate, FaultInjector, FaultKind, Faults
from nightjar.model_server.model_request import ApiError, Fields, ModelRequest, read_fields
from nightjar.model_server.protocols import CHAT_COMPLETIONS, PROTOCOLS, ModelProtocol
from nightjar.model_server.server_stats import RecordedRequest, ServerStats, recorded_request

DEFAULT_MODEL = "local"
"""The listed model of a server that accepts any model."""

_SLOW_PIECES = 20
_ANY_SIZE = 0

_HOST = "127.0.0.1"
_WAITING_CONNECTIONS = 4096
_GRACE_SECONDS = 0.2

_T = TypeVar("_T")


@dataclasses.dataclass(slots=True)
class Routes:
    """Answers requests, with injected faults, and counts them; for the fields, see ``ModelServer``."""

    answerer: Answerer
    faults: Faults
    require_key: str | None
    only_model: str | None
    max_context_tokens: int | None
    requests: deque[RecordedRequest]
    stats: ServerStats = dataclasses.field(default_factory=ServerStats)
    _numbers: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))
    _injector: FaultInjector = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._injector = FaultInjector(self.faults)

    def application(self) -> web.Application:
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
        """The token ids of messages, as vLLM counts them."""
        try:
            fields = await self._fields(request, CHAT_COMPLETIONS)
            return _json(tokenize_body(fields, self.max_context_tokens))
        except ApiError as error:
            return _error(error, CHAT_COMPLETIONS)

    async def models(self, request: web.Request) -> web.StreamResponse:
        """The names of the models."""
        try:
            self._check_headers(request, CHAT_COMPLETIONS)
        except ApiError as error:
            return _error(error, CHAT_COMPLETIONS)
        return _json(models_body([self.only_model or DEFAULT_MODEL]))

    async def health(self, _: web.Request) -> web.StreamResponse:
        """Whether the server answers."""
        return _json(b'{"status":"ok"}')

    async def show_stats(self, request: web.Request) -> web.StreamResponse:
        """The number of requests and faults. With ``?questions=1``, also how often each question was asked."""
        fields = {field.name: getattr(self.stats, field.name) for field in dataclasses.fields(self.stats)}
        if request.query.get("questions", "0") in ("", "0"):
            del fields["questions"]
        return _json(orjson.dumps(fields, option=orjson.OPT_NON_STR_KEYS))

    async def reset_stats(self, _request: web.Request) -> web.StreamResponse:
        """Sets the numbers of ``/stats`` to 0."""
        self.stats.reset()
        return web.Response(status=204)

    async def unknown(self, request: web.Request) -> web.StreamResponse:
        message = f"Unknown request: {request.method} {request.path}. The base URL ends in /v1."
        return _json(error_body(ApiError(404, message, code="unknown_url")), 404)

    async def _serve(self, request: web.Request, protocol: ModelProtocol) -> web.StreamResponse:
        asked = protocol.parse_request(await self._fields(request, protocol))
        self._check_request(asked, protocol)
        fate = self._injector.draw()
        if fate.fault is None or fate.fault is FaultKind.SLOW:
            return await self._answer(request, protocol, asked, fate)
        await asyncio.sleep(fate.latency_seconds)
        self.stats.faults[fate.fault] += 1
        return self._fail(request, protocol, fate.fault, fate.retry_after_seconds)

    async def _fields(self, request: web.Request, protocol: ModelProtocol) -> Fields:
        self._check_headers(request, protocol)
        fields = read_fields(await request.read())
        if self.requests.maxlen:
            self.requests.append(recorded_request(request.path, request.headers, fields))
        return fields

    def _check_headers(self, request: web.Request, protocol: ModelProtocol) -> None:
        if self.require_key is not None and protocol.key(request.headers) != self.require_key:
            raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")
        if protocol.required_header is not None and protocol.required_header not in request.headers:
            raise ApiError(400, f"{protocol.required_header}: header is required")

    def _check_request(self, asked: ModelRequest, protocol: ModelProtocol) -> None:
        if self.only_model is not None and asked.model != self.only_model:
            problem = f"The model {asked.model!r} does not exist. The server has {self.only_model!r}."
            raise ApiError(404, problem, code="model_not_found", param="model")
        if self.max_context_tokens is not None and asked.prompt_tokens > self.max_context_tokens:
            raise protocol.overlong_error(asked.prompt_tokens, self.max_context_tokens)

    async def _answer(
        self, request: web.Request, protocol: ModelProtocol, asked: ModelRequest, fate: Fate
    ) -> web.StreamResponse:
        try:
            answer = self.answerer.answer(asked.messages)
        except DatasetError as error:
            raise ApiError(400, str(error), code="unknown_question", param="messages") from error
        await asyncio.sleep(fate.latency_seconds)
        body = protocol.answer_body(asked, answer, next(self._numbers))
        response: web.StreamResponse
        if fate.fault is FaultKind.SLOW:
            self.stats.faults[FaultKind.SLOW] += 1
            response = await _send_slowly(request, body, self.faults.slow_seconds)
        else:
            response = _json(body)
            await response.prepare(request)
            await response.write_eof()
        self.stats.count_answer(answer.question)
        return response

    def _fail(self, request: web.Request, protocol: ModelProtocol, fault: FaultKind, wait: int | None) -> web.Response:
        errors = {
            FaultKind.RATE_LIMITED: ApiError(429, "Rate limit reached.", kind="requests", code="rate_limit_exceeded"),
            FaultKind.OVERLOADED: ApiError(protocol.overloaded_status, "Overloaded", kind="server_error"),
            FaultKind.SERVER_ERROR: ApiError(500, "The server had an error.", kind="server_error"),
        }
        if fault in errors:
            return _error(errors[fault], protocol, wait)
        if fault is FaultKind.DROPPED and request.transport is not None:
            request.transport.abort()
        return _json(b'{"id": "chatcmpl-')


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _error(error: ApiError, protocol: ModelProtocol, retry_after_seconds: int | None = None) -> web.Response:
    response = _json(protocol.error_body(error), error.status)
    if retry_after_seconds is not None:
        response.headers["Retry-After"] = str(retry_after_seconds)
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


class ModelServer:
    """Serves the answers of an answerer during a ``with`` block.

    The end of the block ends requests in flight; the counts can be read afterwards.

    If ``require_key`` is None, any key or no key is accepted; otherwise another key gets status 401. If ``only_model``
    is None, any model is accepted; otherwise another model gets status 404. A prompt with more words than
    ``max_context_tokens`` gets status 400. ``port`` 0 takes a free port.

    Example:
        >>> import urllib.request
        >>> from nightjar.model_server import FixedAnswer
        >>> with ModelServer(FixedAnswer("yes")) as server:
        ...     with urllib.request.urlopen(f"{server.base_url}/models") as response:
        ...         response.status
        200
    """

    def __init__(
        self,
        answerer: Answerer,
        *,
        faults: Faults | None = None,
        require_key: str | None = None,
        only_model: str | None = None,
        port: int = 0,
        max_context_tokens: int | None = None,
        keep_requests: int = 0,
    ) -> None:
        if max_context_tokens is not None and max_context_tokens < 1:
            raise ConfigError(f"max_context_tokens is {max_context_tokens}. A prompt has at least one token.")
        self.port = port
        kept: deque[RecordedRequest] = deque(maxlen=keep_requests)
        self._routes = Routes(answerer, faults or Faults(), require_key, only_model, max_context_tokens, kept)
        self._portal: BlockingPortal | None = None
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """The base URL for clients, ``http://127.0.0.1:PORT/v1``."""
        return f"http://{_HOST}:{self.port}/v1"

    base_url = url
    """The same URL under the name that SDKs use."""

    @property
    def root_url(self) -> str:
        """The URL without ``/v1``, the base URL of Anthropic's SDK."""
        return f"http://{_HOST}:{self.port}"

    @property
    def requests(self) -> list[RecordedRequest]:
        """The last ``keep_requests`` requests to the model and to ``/tokenize``, oldest first."""
        return self._in_loop(lambda: list(self._routes.requests))

    def stats(self) -> ServerStats:
        """Returns a copy of the counts."""
        now = self._routes.stats
        copied = dataclasses.replace
        return self._in_loop(lambda: copied(now, faults=now.faults.copy(), questions=now.questions.copy()))

    def reset_stats(self) -> None:
        """Resets the counts."""
        self._in_loop(self._routes.stats.reset)

    def __enter__(self) -> Self:
        """Starts to listen; raises ``ServiceError`` if the port is in use or not allowed."""
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal(name="nightjar-model-server"))
            stack.enter_context(portal.wrap_async_context_manager(self._listening()))
            self._portal = portal
            stack.callback(setattr, self, "_portal", None)
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _in_loop(self, function: Callable[[], _T]) -> _T:
        return self._portal.call(function) if self._portal else function()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        options: dict[str, Any] = {"access_log": None, "handler_cancellation": True}
        runner = web.AppRunner(self._routes.application(), shutdown_timeout=_GRACE_SECONDS, **options)
        await runner.setup()
        try:
            site = web.TCPSite(runner, _HOST, self.port, backlog=_WAITING_CONNECTIONS)
            try:
                await site.start()
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    problem = f"Port {self.port} of {_HOST} is in use. Choose another port, or port 0 for any free one."
                else:
                    problem = f"Cannot listen on port {self.port} of {_HOST}: {error.strerror}."
                raise ServiceError(problem) from error
            self.port = runner.addresses[0][1]
            yield
        finally:
            await runner.cleanup()
