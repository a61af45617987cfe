"""``AgentBridge``: an HTTP server that stands for the model in front of agent programs.

An agent gets a base URL and a key of its own, and sends its requests in one of the protocols below. The code that runs
the rollout takes the requests from the agent's conversation and answers them::

    bridge = AgentBridge()
    await bridge.start()
    conversation = bridge.open(model="gpt-4.1-mini")
    ...  # the agent: OpenAI(base_url=f"{bridge.url}{conversation.path}/v1", api_key=conversation.token)
    request = await conversation.next_request()
    request.answer(await client.get_response(request.messages, model, request.sampling_args, request.tools))

==========================================  =====================================================
POST /rollout/ID/v1/chat/completions        OpenAI's chat completions
POST /rollout/ID/v1/responses               OpenAI's Responses API, stateless
POST /rollout/ID/v1/messages                Anthropic's messages
POST /rollout/ID/v1/messages/count_tokens   a rough count of the tokens of a request
GET /rollout/ID/v1/models                   the model, in the form of both providers
==========================================  =====================================================

Agents are untrusted. Bodies and connections are limited, and an agent whose requests take long to parse waits longer
between them. Errors carry no traceback, and a key opens one conversation only. A stream (``"stream": true``) contains
the whole answer at its end, and signs of life until then.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage

from nightjar.core.json_bytes import json_bytes
from nightjar.core.messages import Response
from nightjar.environments.agents import bridge_chat, bridge_messages, bridge_responses
from nightjar.environments.agents.bridge_protocol import BridgeProtocol, RequestError, parse_json
from nightjar.environments.agents.conversation import AgentRequest, Conversation
from nightjar.errors import ServiceError

T = TypeVar("T")
logger = logging.getLogger(__name__)
_silent = logging.getLogger(f"{__name__}.http")
_silent.setLevel(logging.CRITICAL)  # agents may send anything; they get the errors

PROTOCOLS: dict[str, BridgeProtocol] = {
    "/v1/chat/completions": bridge_chat,
    "/v1/responses": bridge_responses,
    "/v1/messages": bridge_messages,
}
"""The protocols by path. To add a protocol, write its module and add a row."""

MAX_BODY_BYTES = 64 * 2**20
KEEP_ALIVE_SECONDS = 10.0

_SUPPORTED = [*(f"POST {path}" for path in PROTOCOLS), "POST /v1/messages/count_tokens", "GET /v1/models"]
_WAITING_CONNECTIONS = 1024
_MOST_CONNECTIONS = 256
"""The most connections from one address: a container, or a proxy in front of several."""

_REST_PER_PARSING = 4.0
_GRACE_SECONDS = 0.5
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - each conversation has a token
_STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class AgentBridge:
    """Serves any number of conversations on one port, in the event loop that starts it."""

    def __init__(self, *, keep_alive_seconds: float = KEEP_ALIVE_SECONDS) -> None:
        self.host = ""
        self.port = 0
        self._ports: dict[str, int] = {}
        self._keep_alive_seconds = keep_alive_seconds
        self._conversations: dict[str, Conversation] = {}
        self._runner: web.ServerRunner | None = None
        self._starting = asyncio.Lock()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listens on an address of this machine, unless it already does, and returns the URL; port 0 is a free one.

        If the machine does not have the address, as when the engine runs in a virtual machine, listens on all.
        Raises ``ServiceError`` if the port is in use or not allowed.
        """
        async with self._starting:
            if self._runner is None:
                self._runner = await self._set_up()
            if host not in self._ports:
                self._ports[host] = await self._listen(self._runner, host, port)
            self.host = self.host or host
            self.port = self.port or self._ports[host]
            return f"http://{host}:{self._ports[host]}"

    async def stop(self) -> None:
        """Closes all conversations and stops to listen."""
        for conversation in self._conversations.values():
            conversation.close()
        self._conversations.clear()
        runner, self._runner = self._runner, None
        self._ports.clear()
        if runner is not None:
            await runner.cleanup()

    def open(self, model: str) -> Conversation:
        """Opens a conversation with a token of its own. ``model`` is the name that the agent sees."""
        self._conversations = {known: each for known, each in self._conversations.items() if each.is_open}
        conversation = Conversation(model)
        self._conversations[conversation.id] = conversation
        return conversation

    async def _set_up(self) -> web.ServerRunner:
        server = _LimitedServer(
            self._handle, request_factory=_new_request, access_log=None, handler_cancellation=True, logger=_silent
        )
        runner = web.ServerRunner(server, shutdown_timeout=_GRACE_SECONDS)
        await runner.setup()
        return runner

    async def _listen(self, runner: web.ServerRunner, host: str, port: int) -> int:
        for address in (host, _ALL_ADDRESSES):
            try:
                await web.TCPSite(runner, address, port, backlog=_WAITING_CONNECTIONS).start()
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL and address != _ALL_ADDRESSES:
                    continue
                raise ServiceError(f"Cannot listen on port {port} of {host}: {error.strerror}. Use port 0.") from error
            return int(runner.addresses[-1][1])
        raise AssertionError("unreachable")

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = _path_of(request)
        protocol = PROTOCOLS.get(path.removesuffix("/count_tokens"), bridge_chat)
        try:
            return await self._answer(request, path)
        except RequestError as error:
            return _failed(protocol, error)
        except web.HTTPRequestEntityTooLarge:
            problem = f"The body is larger than {MAX_BODY_BYTES // 2**20} MB."
            return _failed(protocol, RequestError(413, problem))
        except (ConnectionError, web.HTTPException):
            return _failed(protocol, RequestError(400, "The request was not received completely."))
        except Exception:
            logger.exception("The agent bridge failed to handle %s %s", request.method, request.path)
            return _failed(protocol, RequestError(500, "The server of the model failed to handle this request."))

    async def _answer(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        conversation = self._conversation(request)
        match request.method, path:
            case "GET", "/v1/models":
                return _json(_models_body(conversation.model))
            case "POST", "/v1/messages/count_tokens":
                tokens, _ = await _read(request, conversation, bridge_messages.count_tokens)
                return _json(tokens)
            case "POST", path if path in PROTOCOLS:
                return await self._ask(request, conversation, PROTOCOLS[path])
        problem = f"Unsupported: {request.method} {path or '/'}. The server supports {', '.join(_SUPPORTED)}."
        raise RequestError(404, problem)

    def _conversation(self, request: web.BaseRequest) -> Conversation:
        """Returns the conversation of a request with the right token. The error does not tell which ids exist."""
        _, _, after = request.path.partition("/rollout/")
        conversation = self._conversations.get(after.partition("/")[0])
        expected = conversation.token if conversation is not None and conversation.is_open else ""
        is_right = hmac.compare_digest(_token(request.headers), expected.encode())
        if conversation is None or not expected or not is_right:
            raise RequestError(401, "Wrong or missing API key. Use the URL and key in the environment of the agent.")
        return conversation

    async def _ask(
        self, request: web.BaseRequest, conversation: Conversation, protocol: BridgeProtocol
    ) -> web.StreamResponse:
        parsed, size = await _read(request, conversation, protocol.parse)
        with conversation.enqueued(parsed, size) as asked:
            if parsed.is_streamed:
                return await self._stream(request, asked, protocol, conversation.model, parsed.hides_reasoning)
            response = _visible(await asyncio.shield(asked.response), parsed.hides_reasoning)
            return _json(protocol.answer_body(response, conversation.model))

    async def _stream(
        self, request: web.BaseRequest, asked: AgentRequest, protocol: BridgeProtocol, model: str, hides_reasoning: bool
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers=_STREAM_HEADERS)
        while not (await asyncio.wait([asked.response], timeout=self._keep_alive_seconds))[0]:
            await _write(request, stream, protocol.KEEP_ALIVE)
        try:
            response = _visible(asked.response.result(), hides_reasoning)
        except RequestError as error:
            if not stream.prepared:
                raise
            await _write(request, stream, protocol.error_event(error.status, error.message))
        else:
            await _write(request, stream, b"".join(protocol.stream_events(response, model)))
        await stream.write_eof()
        return stream


class _LimitedServer(web.Server):
    """Closes new connections from an address that already has the most connections."""

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        address = _address_of(transport)
        if sum(_address_of(each.transport) == address for each in self.connections) >= _MOST_CONNECTIONS:
            transport.abort()
        super().connection_made(handler, transport)


def _address_of(transport: asyncio.BaseTransport | None) -> str | None:
    peer = None if transport is None else transport.get_extra_info("peername")
    return peer and str(peer[0])


def _new_request(message: RawRequestMessage, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)


def _path_of(request: web.BaseRequest) -> str:
    """Returns the path after the id of the rollout."""
    _, _, after = request.path.partition("/rollout/")
    _, slash, path = after.partition("/")
    return f"{slash}{path}".rstrip("/")


def _token(headers: Mapping[str, str]) -> bytes:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    given = headers.get("x-api-key") or (key if scheme.lower() == "bearer" else "")
    return given.strip().encode("utf-8", "surrogateescape")


async def _read(request: web.BaseRequest, conversation: Conversation, parse: Callable[[Any], T]) -> tuple[T, int]:
    """Returns a parsed body and its size. An agent can send only a few bodies at once, which bounds their memory.

    Other rollouts cannot go on while a body is parsed, so its agent rests in proportion.
    """
    async with conversation.reading:
        raw = await request.read()
        started = time.monotonic()
        try:
            return parse(parse_json(raw)), len(raw)
        finally:
            await asyncio.sleep(_REST_PER_PARSING * (time.monotonic() - started))


async def _write(request: web.BaseRequest, stream: web.StreamResponse, data: bytes) -> None:
    if not stream.prepared:
        await stream.prepare(request)
    await stream.write(data)


def _visible(response: Response, hides_reasoning: bool) -> Response:
    if not hides_reasoning:
        return response
    message = response.message.model_copy(update={"reasoning_content": None, "thinking_blocks": None})
    return response.model_copy(update={"message": message})


def _json(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=json_bytes(body), status=status, content_type="application/json")


def _failed(protocol: BridgeProtocol, error: RequestError) -> web.Response:
    response = _json(protocol.error_body(error.status, error.message), error.status)
    if error.status != HTTPStatus.TOO_MANY_REQUESTS:
        response.headers["x-should-retry"] = "false"  # Nightjar has already retried; both providers' SDKs obey
    return response


def _models_body(model: str) -> dict[str, Any]:
    """Returns the list of models in a form that the SDKs of both providers read."""
    listed = {"id": model, "object": "model", "created": 0, "owned_by": "nightjar"}
    listed |= {"type": "model", "display_name": model, "created_at": "1970-01-01T00:00:00Z"}
    return {"object": "list", "data": [listed], "has_more": False, "first_id": model, "last_id": model}
