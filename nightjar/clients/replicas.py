"""Replicas of an endpoint. The requests of a group go to one replica. Failing replicas are paused."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nightjar.clients.client import AnyClient, ClientAround
from nightjar.clients.config import ClientConfig
from nightjar.clients.failures import Failure, classify
from nightjar.clients.pace import Pace
from nightjar.clients.retries import watch
from nightjar.core.messages import Messages, Response, Tool
from nightjar.core.rollout.state import SamplingArgs
from nightjar.errors import ConfigError, ModelError, OverlongPromptError

FAILURES_UNTIL_LEFT_OUT = 3
"""The number of consecutive failures after which a replica is paused."""
PAUSE_SECONDS = 30.0
"""The length of a pause in seconds. After the pause, one request probes the replica."""
REMEMBERED_GROUPS = 65_536
"""The number of groups whose replica is remembered. The most recent groups are remembered."""


class _Replica:
    __slots__ = ("client", "failures", "paused_until", "reason")

    def __init__(self, client: AnyClient) -> None:
        self.client = client
        self.failures = 0
        self.paused_until = 0.0
        self.reason = ""

    @property
    def name(self) -> str:
        return self.client.config.api_base_url if self.client.config else type(self.client).__name__

    def note_success(self) -> None:
        self.failures, self.paused_until = 0, 0.0

    def note_failure(self, now: float, reason: str) -> None:
        self.failures, self.reason = self.failures + 1, reason
        if self.failures >= FAILURES_UNTIL_LEFT_OUT:
            self.paused_until = now + PAUSE_SECONDS

    def is_open(self, now: float) -> bool:
        """Returns whether the replica accepts requests. After a pause, one caller is let through as a probe."""
        if now < self.paused_until:
            return False
        if self.paused_until:
            self.paused_until = now + PAUSE_SECONDS
        return True


class ReplicaClient(ClientAround):
    """Sends each group of rollouts to one of several replicas of an endpoint.

    Groups are assigned in turn, so a model server computes the common prompt of a group once. If a replica cannot
    answer (no connection, timeout, a rejected key, status 404, 429 or 500 and above), the request and its group move to
    the next replica at once. The request fails if all replicas fail. After ``FAILURES_UNTIL_LEFT_OUT`` consecutive
    failures a replica is paused. After ``PAUSE_SECONDS`` one request probes the replica. If all replicas are paused,
    the group's replica is used nevertheless. With ``is_per_rollout``, rollouts are assigned instead of groups. Without
    ``state``, each request is its own group.

    Example:
        >>> import asyncio
        >>> from nightjar.clients import OpenAIChatCompletionsClient
        >>> from nightjar.core.messages import UserMessage
        >>> from nightjar.model_server import FixedAnswer, ModelServer
        >>> async def ask(*urls):
        ...     clients = [OpenAIChatCompletionsClient(ClientConfig(api_base_url=url)) for url in urls]
        ...     async with ReplicaClient(clients) as client:
        ...         for example in (0, 0, 1):
        ...             state = {"input": {"example_id": example}}
        ...             await client.get_response([UserMessage(content="2+2?")], "any", {}, state=state)
        >>> with ModelServer(FixedAnswer("4")) as one, ModelServer(FixedAnswer("4")) as other:
        ...     asyncio.run(ask(one.base_url, other.base_url))
        ...     one.stats().answered, other.stats().answered
        (2, 1)
    """

    def __init__(
        self,
        clients: Iterable[AnyClient],
        config: ClientConfig | None = None,
        *,
        is_per_rollout: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clients if isinstance(clients, ClientConfig) else tuple(clients), config)
        if not self.client:
            raise ConfigError("A ReplicaClient needs at least one client.")
        self.max_retries = (config or self.client[0]).max_retries
        self._replicas = [_Replica(client) for client in self.client]
        self._is_per_rollout = is_per_rollout
        self._clock = clock
        self._groups: OrderedDict[Hashable, int] = OrderedDict()
        self._turns = itertools.cycle(range(len(self._replicas)))

    @property
    def inner(self) -> AnyClient:
        """The first replica. All replicas convert messages and responses in the same way."""
        inner: AnyClient = self.client[0]
        return inner

    async def close(self) -> None:
        for client in self.client:
            await client.close()

    def paces(self) -> Sequence[Pace]:
        return [pace for client in self.client for pace in client.paces()]

    async def request_once(
        self, prompt: Messages, model: str, sampling_args: SamplingArgs, tools: list[Tool] | None = None, **kwargs: Any
    ) -> Response:
        group, watching = self._group_of(kwargs.get("state")), watch.get()
        failed: tuple[Failure, Exception] | None = None
        for position in self._order(group):
            if failed and watching is not None:
                watching.moved(failed[0])
            replica = self._replicas[position]
            self._remember(group, position)
            try:
                response = await replica.client.request_once(prompt, model, sampling_args, tools, **kwargs)
            except Exception as error:
                failure = classify(error)
                if not failure.is_of_endpoint:
                    if isinstance(error, OverlongPromptError | ModelError):
                        replica.note_success()
                    raise
                replica.note_failure(self._clock(), failure.message)
                self._remember(group, (position + 1) % len(self._replicas))
                if failed is None or failure.is_repeatable:
                    failed = failure, error
            else:
                replica.note_success()
                return response
        if failed is None:
            raise AssertionError("unreachable")
        if isinstance(failed[1], ModelError):
            raise type(failed[1])(self._reasons()) from failed[1].__cause__
        raise failed[1]

    def _order(self, group: Hashable) -> Iterator[int]:
        """Yields the replicas that accept requests, starting with the replica of the group.

        If no replica accepts requests, only the replica of the group is yielded.
        """
        known = self._groups.get(group) if group is not None else None
        first = next(self._turns) if known is None else known
        is_any_open = False
        for step in range(len(self._replicas)):
            position = (first + step) % len(self._replicas)
            if self._replicas[position].is_open(self._clock()):
                is_any_open = True
                yield position
        if not is_any_open:
            yield first

    def _reasons(self) -> str:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in self._replicas if one.failures)
        return f"no replica answered: {reasons}"

    def _remember(self, group: Hashable, position: int) -> None:
        if group is None:
            return
        self._groups[group] = position
        self._groups.move_to_end(group)
        if len(self._groups) > REMEMBERED_GROUPS:
            self._groups.popitem(last=False)

    def _group_of(self, state: Mapping[str, Any] | None) -> Hashable:
        columns = state.get("input") if state is not None else None
        if not columns or "example_id" not in columns:
            return None
        example_id = columns["example_id"]
        return (example_id, columns.get("rollout_index")) if self._is_per_rollout else example_id

    async def get_native_response(self, *args: Any, **kwargs: Any) -> Any:
        group = self._group_of(kwargs.get("state"))
        position = next(self._order(group))
        self._remember(group, position)
        return await self._replicas[position].client.get_native_response(*args, **kwargs)
