"""The requests of one agent: ``AgentRequest``, and the ``Conversation`` in which they wait for an answer."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from nightjar.core.messages import Messages, Response, Tool
from nightjar.core.rollout.state import SamplingArgs
from nightjar.environments.agents.bridge_protocol import ParsedRequest, RequestError
from nightjar.errors import InfraError

_MOST_WAITING = 64
_MOST_WAITING_BYTES = 128 * 2**20
_MOST_RECEIVED_BYTES = 2**30
"""What an agent may send in all its requests, which are kept until its rollout ends."""

_READS_AT_ONCE = 2
_TOKEN_BYTES = 32
_ID_BYTES = 8
_ENDED = "The rollout has ended. No further request is answered."


class AgentRequest:
    """One request of an agent, which waits until it is answered, failed or abandoned by the agent."""

    def __init__(self, parsed: ParsedRequest, size_bytes: int) -> None:
        self.messages: Messages = parsed.messages
        self.tools: list[Tool] | None = parsed.tools
        self.sampling_args: SamplingArgs = parsed.sampling_args
        self.size_bytes = size_bytes
        self.response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        # retrieves the error, which asyncio would otherwise log if the agent has gone
        self.response.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def is_waiting(self) -> bool:
        return not self.response.done()

    def answer(self, response: Response) -> None:
        """Sends the model's response. It is discarded if the agent no longer waits."""
        if self.is_waiting:
            self.response.set_result(response)

    def fail(self, status: int, message: str) -> None:
        """Sends an error with an HTTP status. It is discarded if the agent no longer waits."""
        if self.is_waiting:
            self.response.set_exception(RequestError(status, message))


class Conversation:
    """The requests of one rollout's agent. Only requests with ``token`` belong to the conversation, until it is closed.

    ``path`` is the path of the agent's base URL; OpenAI's protocols need ``/v1`` after it.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.id = secrets.token_hex(_ID_BYTES)
        self.token = f"sk-nightjar-{secrets.token_urlsafe(_TOKEN_BYTES)}"
        self.path = f"/rollout/{self.id}"
        self.is_open = True
        self.reading = asyncio.Semaphore(_READS_AT_ONCE)
        self._queue: deque[AgentRequest] = deque()
        self._unanswered: set[AgentRequest] = set()
        self._arrival = asyncio.Event()
        self._received_bytes = 0

    def take_request(self) -> AgentRequest | None:
        """Returns the oldest request that still waits, or None."""
        while self._queue:
            request = self._queue.popleft()
            if request.is_waiting:
                return request
        self._arrival.clear()
        return None

    async def wait_for_request(self) -> None:
        """Waits until ``take_request`` is worth a call."""
        await self._arrival.wait()

    async def next_request(self) -> AgentRequest:
        """Waits for the next request. Raises ``InfraError`` if the conversation is closed."""
        while (request := self.take_request()) is None:
            if not self.is_open:
                raise InfraError("The conversation with the agent is closed")
            await self._arrival.wait()
        return request

    @contextmanager
    def enqueued(self, parsed: ParsedRequest, size_bytes: int) -> Iterator[AgentRequest]:
        """Queues a request during the block. Raises ``RequestError`` if the conversation is closed or full."""
        if not self.is_open:
            raise RequestError(503, _ENDED)
        waiting_bytes = sum(waiting.size_bytes for waiting in self._unanswered)
        if len(self._unanswered) >= _MOST_WAITING or waiting_bytes + size_bytes > _MOST_WAITING_BYTES:
            raise RequestError(429, f"{len(self._unanswered)} requests of this agent already wait for an answer.")
        self._received_bytes += size_bytes
        if self._received_bytes > _MOST_RECEIVED_BYTES:
            raise RequestError(413, f"The requests of this agent have more than {_MOST_RECEIVED_BYTES / 2**20:g} MB.")
        request = AgentRequest(parsed, size_bytes)
        self._unanswered.add(request)
        self._queue.append(request)
        self._arrival.set()
        try:
            yield request
        finally:
            self._unanswered.discard(request)
            request.response.cancel()

    def close(self) -> None:
        """Refuses further requests, and fails waiting requests with status 503. Closing twice is allowed."""
        self.is_open = False
        for request in self._unanswered:
            request.fail(503, _ENDED)
        self._queue.clear()
        self._arrival.set()
