"""The limit of an endpoint, divided among the flow runs that name it.

Each writes down on its own flow run, in labels, how many rollouts it wants to generate at once and how many it holds.
From what all have written each works out the same fair shares. It lets go of what is above its share once those
rollouts have ended. What is free it writes down first, and uses only if all that is written is within the limit then:
of two that take the same at the same moment, at least the later one sees the other. What a run holds ends with the
state of its flow run, so there is nothing to free when its process dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from typing import Self
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.runtime import flow_run
from prefect.types import KeyValueLabels

from flows.naming import endpoint_tag
from nightjar.engine import task_group
from nightjar.engine.limits import fair_shares
from nightjar.evaluation import Run
from tasks.away import SERVER_IS_AWAY, note

logger = logging.getLogger("nightjar.endpoint")

_SECONDS = 2.0
_MOST_RUNS = 200


@asynccontextmanager
async def shared_limit(run: Run, endpoint: str, limit: int) -> AsyncIterator[None]:
    """Lets a run generate, while the block lasts, no more rollouts at once than its share of an endpoint's limit.

    Args:
        run: while it has no share it waits, and can be stopped.
        endpoint: name of a ``ModelEndpoint`` block.
        limit: how many the runs that name it may generate at once together; 0 for any number.
    """
    if not limit:
        yield
        return
    share = _Share(run, endpoint, limit)
    async with task_group() as tasks:
        looking = tasks.create_task(share.keep())
        try:
            yield
        finally:
            looking.cancel()


@dataclass(frozen=True)
class _Claim:
    """What a run has written down.

    Attributes:
        limit: that of the endpoint when it began.
        wanted: how many rollouts it wants to generate at once.
        held: how many it may, or is about to.
    """

    limit: int
    wanted: int
    held: int

    @classmethod
    def of(cls, other: FlowRun) -> Self | None:
        """Returns it from a flow run; None where nothing is written down yet."""
        try:
            return cls(**{field.name: int(other.labels[_label(field.name)]) for field in fields(cls)})
        except KeyError:
            return None

    def labels(self) -> KeyValueLabels:
        """Returns it as labels of a flow run."""
        return {_label(name): value for name, value in asdict(self).items()}


def _label(name: str) -> str:
    return f"nightjar/endpoint-{name}"


class _Share:
    """The share of one run."""

    def __init__(self, run: Run, endpoint: str, limit: int) -> None:
        self._id = UUID(str(flow_run.id))
        self._places = run.generating
        self._run = run
        self._endpoint = endpoint
        self._limit = limit
        self._most = int(self._places.ceiling)
        self._held = 0
        self._runs = 1
        self._has_waited = False
        self._places.set_ceiling(0)

    async def keep(self) -> None:
        """Follows what the other runs do; while the server is away, the run goes on with what it holds."""
        while True:
            try:
                await self._look()
                note(away=False)
            except SERVER_IS_AWAY:
                note(away=True)
            await asyncio.sleep(_SECONDS)

    async def _look(self) -> None:
        claims = await self._claims()
        own = self._claim(self._held)
        if claims.get(self._id) != own:
            await self._write(own)
        claims[self._id] = own
        limit = min(claim.limit for claim in claims.values())
        shares = dict(zip(claims, fair_shares(limit, [claim.wanted for claim in claims.values()]), strict=True))
        share, free = shares[self._id], limit - sum(claim.held for claim in claims.values())
        self._places.set_ceiling(min(share, self._held))
        if share < self._held:
            await self._let_go(max(share, self._places.in_use))
        elif share > self._held and free > 0:
            await self._take(min(share, self._held + free))
        self._say(sum(claim.wanted > 0 for claim in claims.values()), share, limit)

    async def _let_go(self, kept: int) -> None:
        """Gives back what is neither its share nor in use any more."""
        if kept < self._held:
            self._held = kept
            await self._write(self._claim(kept))

    async def _take(self, number: int) -> None:
        """Takes so many, unless another run has taken them at the same moment."""
        await self._write(self._claim(number))
        claims = await self._claims()
        is_within = sum(claim.held for claim in claims.values()) <= min(claim.limit for claim in claims.values())
        if self._id in claims and is_within:  # else somebody has ended the flow run
            self._held = number
            self._places.set_ceiling(number)

    def _claim(self, held: int) -> _Claim:
        wanted = self._most if self._run.has_more_to_start else self._places.in_use
        return _Claim(self._limit, wanted, held)

    async def _claims(self) -> dict[UUID, _Claim]:
        """Returns what the runs under way have written down, the one first that began first."""
        under_way = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING]))
        chosen = FlowRunFilter(tags=FlowRunFilterTags(all_=[endpoint_tag(self._endpoint)]), state=under_way)
        async with get_client() as client:
            found = await client.read_flow_runs(
                flow_run_filter=chosen, sort=FlowRunSort.START_TIME_ASC, limit=_MOST_RUNS
            )
        return {other.id: claim for other in found if (claim := _Claim.of(other)) is not None}

    async def _write(self, claim: _Claim) -> None:
        async with get_client() as client:
            await client.update_flow_run_labels(self._id, claim.labels())

    def _say(self, runs: int, share: int, limit: int) -> None:
        """Says in the log how many runs share the limit, when that changes; once, that this one waits for a share."""
        if not self._held and self._run.has_more_to_start and not self._has_waited:
            self._has_waited = True
            said = "Endpoint %r allows %d rollouts at once, which other runs have: waiting for a share of them"
            logger.info(said, self._endpoint, limit)
        elif share and self._held and runs != self._runs:
            self._runs = runs
            said = "This run may generate %d of the %d rollouts at once of endpoint %r (runs that share it: %d)"
            logger.info(said, share, limit, self._endpoint, runs)
