r"""A model server on loopback, for tests and for trying things out without a provider.

It speaks OpenAI's chat completions, Responses and legacy completions, Anthropic's messages, and vLLM's
routes for token ids, over real HTTP, in a background thread of this process::

    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=200)) as server:
        client = openai.AsyncOpenAI(base_url=server.base_url, api_key="any")
        ...
        assert server.stats().answered == 1

``nightjar model-server`` runs one in a process of its own.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from types import TracebackType
from typing import Self, TypeVar

from aiohttp import web
from anyio.from_thread import BlockingPortal, start_blocking_portal

from nightjar.errors import ConfigError, ServiceError
from nightjar.testing.answers import Answerer
from nightjar.testing.faults import Faults
from nightjar.testing.recorded_requests import RecordedRequest, RequestLog
from nightjar.testing.routes import Admission, Routes
from nightjar.testing.server_stats import ServerStats

_HOST = "127.0.0.1"
_WAITING_CONNECTIONS = 4096
_GRACE_SECONDS = 0.2

_T = TypeVar("_T")


class ModelServer:
    """Serves an answerer's answers while its ``with`` block runs.

    Leaving the block ends requests that are still in flight; the counts can be read afterwards.

    Args:
        answerer: what to answer.
        faults: what goes wrong on the way; nothing by default.
        require_key: the API key that requests must carry (status 401 otherwise); None takes any or
            none.
        only_model: the one model that there is (status 404 otherwise); None answers for every name.
        port: where to listen on 127.0.0.1; 0 takes a free port.
        max_context_tokens: the longest prompt in words; a longer one is refused with the protocol's
            own error (status 400). None means no limit.
        keep_requests: how many of the last requests ``requests`` shows.

    Example:
        >>> import urllib.request
        >>> from nightjar.testing import FixedAnswer
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
        self._log = RequestLog(keep_requests)
        admission = Admission(require_key, only_model, max_context_tokens)
        self._routes = Routes(answerer, faults or Faults(), admission, self._log)
        self._portal: BlockingPortal | None = None
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """The base URL for clients, ``http://127.0.0.1:PORT/v1``."""
        return f"http://{_HOST}:{self.port}/v1"

    @property
    def base_url(self) -> str:
        """The same as ``url``, under the name that clients use."""
        return self.url

    @property
    def root_url(self) -> str:
        """The URL without ``/v1``, the base URL of Anthropic's SDK."""
        return f"http://{_HOST}:{self.port}"

    @property
    def requests(self) -> list[RecordedRequest]:
        """The last requests to the model and to ``/tokenize``, oldest first, as many as ``keep_requests`` says."""
        return self._in_loop(self._log.all)

    def stats(self) -> ServerStats:
        """Returns what was counted up to now."""
        return self._in_loop(self._routes.stats.copy)

    def reset_stats(self) -> None:
        """Starts counting anew."""
        self._in_loop(self._routes.stats.reset)

    def __enter__(self) -> Self:
        """Starts to listen; raises ``ServiceError`` where the port is in use or not allowed."""
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal(name="nightjar-model-server"))
            stack.enter_context(portal.wrap_async_context_manager(self._listening()))
            self._portal = portal
            stack.callback(setattr, self, "_portal", None)
            self._running = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._running.close()

    def _in_loop(self, function: Callable[[], _T]) -> _T:
        """Calls a function between two steps of the server, or at once when it does not run."""
        return self._portal.call(function) if self._portal else function()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        runner = web.AppRunner(
            self._routes.application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_GRACE_SECONDS,
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, _HOST, self.port, backlog=_WAITING_CONNECTIONS)
            try:
                await site.start()
            except OSError as error:
                raise ServiceError(self._why_not(error)) from error
            self.port = runner.addresses[0][1]
            yield
        finally:
            await runner.cleanup()

    def _why_not(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return f"Port {self.port} of {_HOST} is in use. Choose another port, or port 0 for any free one."
        return f"Cannot listen on port {self.port} of {_HOST}: {error.strerror}."
