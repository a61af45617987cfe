"""``retry-failed``: what is owed of runs that failed or crashed, as a Prefect flow; each ends in a table.

Run it::

    nightjar up --detach
    export PREFECT_API_URL=http://127.0.0.1:4200/api
    prefect deployment run retry-failed/retry-failed -p suite=benchmark
    prefect deployment run retry-failed/retry-failed -p run=0a1b2c3d4e5f
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from prefect import State, flow
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed, Failed
from pydantic import Field

from flows.endings import refused
from flows.evaluation import evaluate
from flows.named_blocks import warehouse_location
from flows.naming import named_after
from flows.run_log import nightjar_log_in_run_log
from nightjar import __version__
from nightjar.comparison.judging import find_night, night_of
from nightjar.errors import ConfigError, NightjarError
from nightjar.evaluation.failures import FailureClass, class_called, classes_in
from nightjar.evaluation.nights import end_night
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.runs import Whereabouts
from nightjar.warehouse import Warehouse
from tasks import retrying as tasks
from tasks.nights import show_night

_ENDED_WELL = "Completed"


class Retried(NamedTuple):
    """A run that was retried.

    Attributes:
        before: as it was.
        after: as it is now.
    """

    before: FlowRun
    after: FlowRun

    def row(self) -> dict[str, str]:
        """Returns its line in the table."""
        said = (self.after.state and self.after.state.message) or ""
        return {
            "run": self.before.name,
            "was": self.before.state_name or "",
            "is": self.after.state_name or "",
            "flow run": str(self.before.id),
            "which says": said.partition("\n")[0],
        }


@flow(name="retry-failed", version=__version__, flow_run_name=named_after("run", "suite"), persist_result=False)
async def retry_failed(
    run: str = "",
    suite: str = "",
    since_hours: Annotated[float, Field(gt=0)] = 24,
    error_class: str = "",
    wait_minutes: Annotated[float, Field(gt=0)] = 720,
) -> State[Any]:
    """Does what is owed of runs that failed or crashed, each as the same flow run, and waits for them.

    A run that is under way is left alone, and so is one that somebody cancelled. While an earlier retry is under way,
    this one does nothing. The nights of which it has retried evaluations are judged again.

    Args:
        run: One run: its id, how that begins, or the id of its flow run; empty for all of the last hours.
        suite: Those of this suite alone; empty for all.
        since_hours: Those that were due within so many hours.
        error_class: Those with failures of this class alone, such as "rate limit"; all that they owe is done.
        wait_minutes: How long to wait for them; they go on after that.

    Returns:
        Completed, where all that was retried is complete now; Failed where not. A table artifact says how each ended.
    """
    nightjar_log_in_run_log()
    try:
        if (earlier := await tasks.earlier_under_way()) is not None:
            return Completed(name="Skipped", message=f"{earlier!r} is under way: nothing is retried twice at once")
        owing = [await _one(run)] if run else await tasks.owing_since(since_hours, suite)
        chosen = [each for each in owing if _is_ours(each) and _is_of(each, error_class)]
        retried = await asyncio.gather(*(_again(each, wait_minutes) for each in chosen))
        state = await _final_state(retried)
        await _judge_anew(retried)
    except NightjarError as error:
        return refused(error)
    return state


async def _one(run: str) -> FlowRun:
    """Returns the flow run of a run that has ended.

    Raises:
        ConfigError: there is none, or it is under way.
    """
    try:
        flow_run_id = UUID(run)
    except ValueError:
        stored = await asyncio.to_thread(find_stored_run, run)
        flow_run_id = UUID(stored.metadata.get("flow_run_id") or "0" * 32)
    try:
        found = await tasks.read(flow_run_id)
    except ObjectNotFound:
        raise ConfigError(f"Run {run!r} was no flow run: nightjar eval retry {run}") from None
    if found.state is None or not found.state.is_final():
        raise ConfigError(f"Run {found.name!r} is {found.state_name}: it is under way, and is left alone")
    return found


def _is_ours(owing: FlowRun) -> bool:
    """Says whether a run owes something that can be done from here: without a deployment it goes on in its folder."""
    where = Whereabouts.from_labels(owing.labels)
    return owing.deployment_id is not None or (where is not None and where.is_owed_here())


def _is_of(owing: FlowRun, error_class: str) -> bool:
    if not error_class:
        return True
    if (kind := class_called(error_class)) is None:
        raise ConfigError(f"error_class: {error_class!r} is none of {', '.join(FailureClass)}")
    return kind in classes_in((owing.state and owing.state.message) or "")


async def _again(owing: FlowRun, wait_minutes: float) -> Retried:
    if owing.deployment_id is not None:
        await tasks.retry(owing.id, owing.name, wait_minutes)
        return Retried(owing, await tasks.read(owing.id))
    where = Whereabouts.from_labels(owing.labels)
    assert where is not None, "it is ours"
    state: State[Any] = await evaluate(**{**owing.parameters, "resume": where.run_dir}, return_state=True)
    flow_run_id = state.state_details.flow_run_id
    return Retried(owing, await tasks.read(flow_run_id) if flow_run_id else owing)


async def _judge_anew(retried: Sequence[Retried]) -> None:
    """Judges the nights of a suite again of which evaluations were retried."""
    concerned = {
        (str(each.before.parameters.get("warehouse") or ""), *night)
        for each in retried
        if (night := night_of(each.before.tags)) is not None
    }
    for location, suite, date in sorted(concerned):
        warehouse = Warehouse(await warehouse_location(location))
        if (known := await asyncio.to_thread(find_night, warehouse.nights(), suite, date)) is not None:
            await show_night(await asyncio.to_thread(end_night, warehouse, known))


async def _final_state(retried: Sequence[Retried]) -> State[Any]:
    if not retried:
        return Completed(message="No run has failed or crashed: nothing was retried")
    complete = sum(each.after.state_name == _ENDED_WELL for each in retried)
    about = f"{complete} of {len(retried)} retried runs are complete now"
    await tasks.show_retried([each.row() for each in retried], about)
    return Completed(message=about) if complete == len(retried) else Failed(message=about)
