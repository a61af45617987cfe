"""Replicas of an endpoint that share its load: a group's requests go to one of them, and a broken one is left out."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from nightjar.clients.client import AnyClient, Client
from nightjar.clients.config import ClientConfig
from nightjar.clients.failures import classify
from nightjar.clients.pace import Pace
from nightjar.errors import ConfigError, ModelError, OverlongPromptError
from nightjar.messages import Messages, Response, Tool
from nightjar.rollout.state import SamplingArgs

FAILURES_UNTIL_LEFT_OUT = 3
"""Requests in a row that a replica fails before others are asked in its place."""
PAUSE_SECONDS = 30.0
"""How long a replica is left out; after that one request tries it."""
REMEMBERED_GROUPS = 65_536
"""Groups whose replica is remembered; of more, those that were asked last."""


class _Replica:
    """A client, and how it fares."""

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
        """Says whether it can be asked; after a pause yes to the first who wants to know, for a trial."""
        if now < self.paused_until:
            return False
        if self.paused_until:
            self.paused_until = now + PAUSE_SECONDS
        return True


class ReplicaClient(Client[tuple[AnyClient, ...], Any, Any, Any]):
    """Asks several replicas of one endpoint, each group of rollouts always the same one.

    The next group that appears is given the next replica, in turn. So a model server computes what the rollouts of a
    group have in common, and the turns of a conversation, once. After a request that failed (no connection, no answer
    in time, status 429 or 500 and above) the next replica is the group's. One that fails ``FAILURES_UNTIL_LEFT_OUT``
    requests in a row is left out; after ``PAUSE_SECONDS`` one request tries it again. Where all are left out, they are
    asked nevertheless.

    A rollout's group is known from ``state``, which ``get_response`` is given; without it every request is a group.

    Args:
        clients: one for each replica. ``resolve_client`` makes them of a configuration with ``endpoint_configs``.
        config: the configuration that they were made of.
        is_per_rollout: give each rollout a replica, instead of each group.
        clock: the time in seconds.

    Attributes:
        client: the clients of the replicas.

    Raises:
        ConfigError: there are none.

    Example:
        >>> import asyncio
        >>> from nightjar.clients import OpenAIChatCompletionsClient
        >>> from nightjar.messages import UserMessage
        >>> from nightjar.testing import FixedAnswer, ModelServer
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
        if isinstance(clients, ClientConfig):
            self.setup_client(clients)
        super().__init__(tuple(clients))
        if not self.client:
            raise ConfigError("A ReplicaClient needs at least one client.")
        self.config = config
        self.max_retries = (config or self.client[0]).max_retries
        self._replicas = [_Replica(client) for client in self.client]
        self._is_per_rollout = is_per_rollout
        self._clock = clock
        self._groups: OrderedDict[Hashable, int] = OrderedDict()
        self._turns = itertools.cycle(range(len(self._replicas)))

    def setup_client(self, config: ClientConfig) -> tuple[AnyClient, ...]:
        """Refuses the configuration: the clients are given.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"A ReplicaClient is made of clients, found {config!r}. Use resolve_client.")

    async def close(self) -> None:
        """Closes the connections of all replicas."""
        for client in self.client:
            await client.close()

    def paces(self) -> Sequence[Pace]:
        """Returns the paces of all replicas."""
        return [pace for client in self.client for pace in client.paces()]

    async def request_once(
        self, prompt: Messages, model: str, sampling_args: SamplingArgs, tools: list[Tool] | None = None, **kwargs: Any
    ) -> Response:
        """Asks the replica of the rollout's group once; after a failure of that, the next one is the group's."""
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
        """Returns the first replica from this one on that can be asked; this one where none can."""
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

    async def to_native_prompt(self, messages: Messages) -> tuple[Any, dict[str, Any]]:
        """Returns the provider's prompt, as each replica would."""
        return await self.client[0].to_native_prompt(messages)

    async def to_native_tool(self, tool: Tool) -> Any:
        """Returns the provider's form of a tool, as each replica would."""
        return await self.client[0].to_native_tool(tool)

    async def get_native_response(
        self, prompt: Any, model: str, sampling_args: SamplingArgs, tools: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Calls the replica of the rollout's group once, in the provider's terms."""
        client = self._replicas[self._choose(self._group_of(kwargs.get("state")))].client
        return await client.get_native_response(prompt, model, sampling_args, tools, **kwargs)

    async def raise_from_native_response(self, response: Any) -> None:
        """Raises a ``ModelError`` for an answer that cannot be used, as each replica would."""
        await self.client[0].raise_from_native_response(response)

    async def from_native_response(self, response: Any) -> Response:
        """Returns the answer in Nightjar's form, as each replica would."""
        return await self.client[0].from_native_response(response)
