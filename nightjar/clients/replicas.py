"""Replicas of an endpoint: the requests of a group go to one replica; failing replicas are paused."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from nightjar.clients.client import AnyClient, ClientAround
from nightjar.clients.config import ClientConfig
from nightjar.clients.failures import classify
from nightjar.clients.pace import Pace
from nightjar.core.messages import Messages, Response, Tool
from nightjar.core.rollout.state import SamplingArgs
from nightjar.errors import ConfigError, ModelError, OverlongPromptError

FAILURES_UNTIL_LEFT_OUT = 3
"""Consecutive failures after which a replica is paused."""
PAUSE_SECONDS = 30.0
"""Length of a pause; after it, one request probes the replica."""
REMEMBERED_GROUPS = 65_536
"""Number of groups whose replica is remembered, the most recent ones."""


class _Replica:
    __slots__ = ("client", "failures", "paused_until")

    def __init__(self, client: AnyClient) -> None:
        self.client = client
        self.failures = 0
        self.paused_until = 0.0

    def note_success(self) -> None:
        self.failures, self.paused_until = 0, 0.0

    def note_failure(self, now: float) -> None:
        self.failures += 1
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

    Groups are assigned in turn, so a model server computes the common prompt of a group once. After a failed request
    (no connection, timeout, status 429 or 500 and above) the group moves to the next replica. After
    ``FAILURES_UNTIL_LEFT_OUT`` consecutive failures a replica is paused; after ``PAUSE_SECONDS`` one request probes it.
    If all are paused, they are used nevertheless. ``is_per_rollout`` assigns rollouts in place of groups; without
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
        """The first replica: all convert messages and responses in the same way."""
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
        group = self._group_of(kwargs.get("state"))
        position = self._choose(group)
        replica = self._replicas[position]
        try:
            response = await replica.client.request_once(prompt, model, sampling_args, tools, **kwargs)
        except Exception as error:
            if classify(error).is_repeatable:
                replica.note_failure(self._clock())
                self._remember(group, (position + 1) % len(self._replicas))
            elif isinstance(error, OverlongPromptError | ModelError):
                replica.note_success()
            raise
        replica.note_success()
        return response

    def _choose(self, group: Hashable) -> int:
        first = self._groups.get(group) if group is not None else None
        chosen = self._open_from(next(self._turns) if first is None else first)
        self._remember(group, chosen)
        return chosen

    def _open_from(self, first: int) -> int:
        """Returns the first replica from this one on that accepts requests; this one if none does."""
        count, now = len(self._replicas), self._clock()
        around = ((first + step) % count for step in range(count))
        return next((position for position in around if self._replicas[position].is_open(now)), first)

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
        client = self._replicas[self._choose(self._group_of(kwargs.get("state")))].client
        return await client.get_native_response(*args, **kwargs)
