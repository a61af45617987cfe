"""The current flow run in Prefect's UI: its name, tags, labels, log, progress and final state."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from uuid import UUID

from prefect import State, get_run_logger
from prefect.artifacts import acreate_progress_artifact, aupdate_progress_artifact
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.logging.handlers import APILogHandler, APILogWorker
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed

from nightjar.core.failures import advice_line, failure_class
from nightjar.core.process_ids import process_host
from nightjar.core.secrecy import hidden_in_log
from nightjar.core.secret_signs import has_address_secret
from nightjar.core.standard_output import survive_reader
from nightjar.engine import Run
from nightjar.engine.runs import RunMetadata, Whereabouts
from nightjar.errors import NightjarError, RunError
from nightjar.evaluation import IncompleteRunError, Outcome
from nightjar.evaluation.config import RunConfig
from nightjar.evaluation.config.run_config import usual_name
from nightjar.tasks.away import is_away, reach, settle, tell, wait_until_back

_UNATTENDED_WAIT_MINUTES = 10.0


def flow_run_name() -> str:
    """Returns the environment and the model or endpoint, or the current name if a person may have given it."""
    return name_unless_given(usual_name(flow_run.parameters))


def named_after(*parameters: str) -> Callable[[], str]:
    def name() -> str:
        said = [str(flow_run.parameters.get(parameter) or "") for parameter in parameters]
        return name_unless_given(" | ".join(filter(None, [str(flow_run.flow_name), *said])))

    return name


def name_unless_given(name: str) -> str:
    """Returns ``name``. If a person may have named the flow run, returns the current name of the flow run instead.

    Prefect does not record who named a flow run, so Nightjar names only flow runs of a schedule and flow runs without a
    deployment. A retry changes no name.
    """
    context = FlowRunContext.get()
    found = context.flow_run if context is not None else None
    if found is None or found.run_count:
        return str(flow_run.name or name)
    is_unnamed = found.auto_scheduled or found.deployment_id is None
    return name if is_unnamed else str(found.name)


def patient(config: RunConfig) -> RunConfig:
    """Returns the configuration for an unattended run: the run waits for an endpoint that does not answer yet."""
    if config.wait_for_endpoint is not None:
        return config
    return config.model_copy(update={"wait_for_endpoint": _UNATTENDED_WAIT_MINUTES})


def is_unattended() -> bool:
    """Returns whether a worker runs this flow run."""
    context = FlowRunContext.get()
    return context is not None and context.flow_run is not None and context.flow_run.deployment_id is not None


def endpoint_tag(endpoint: str) -> str:
    return f"endpoint:{endpoint}"


async def tag_flow_run(config: RunConfig | RunMetadata, endpoint: str) -> list[str]:
    """Tags this flow run, for instance for concurrency limits, and records its process for ``nightjar up``.

    A container that a worker recorded stays recorded: the worker removes it if a cancel takes too long.
    """
    own = [f"env:{config.env_id}", f"model:{config.model}", *config.tags]
    own += [endpoint_tag(endpoint)] if endpoint else []
    own += [f"suite:{config.suite}"] if config.suite else []
    tagged: dict[str, Any] = {"tags": sorted({*flow_run.tags, *own})}
    if not _is_in_container():
        tagged["infrastructure_pid"] = f"{process_host()}:{os.getpid()}"
    async with get_client() as client:
        await client.update_flow_run(flow_run.id, **tagged)
    return own


def _is_in_container() -> bool:
    """Returns whether a worker recorded a container or a job for this flow run, and not the id of a process."""
    context = FlowRunContext.get()
    recorded = context.flow_run.infrastructure_pid if context is not None and context.flow_run is not None else None
    return recorded is not None and not recorded.rpartition(":")[2].isdecimal()


async def label_flow_run(run: Run, location: str) -> None:
    """Records where the results are, for ``nightjar up`` to publish them, unless the location holds a secret."""
    where = Whereabouts.of(run.directory.path, None if has_address_secret(location) else location)

    async def label() -> None:
        async with get_client() as client:
            await client.update_flow_run_labels(UUID(str(flow_run.id)), where.labels())

    await tell(label)


async def forget_parameters(names: Collection[str]) -> None:
    """Removes parameters of the flow run, so that they apply to this try but not to the next try."""
    flow_run_id = UUID(str(flow_run.id))
    async with get_client() as client:
        said = (await client.read_flow_run(flow_run_id)).parameters
        await client.update_flow_run(flow_run_id, parameters={key: said[key] for key in said if key not in names})


def final_state(outcome: Outcome) -> State[Outcome]:
    """Returns the state. Its data is the outcome, or the error that a calling flow gets from ``evaluate``.

    The message of the state and the log say why the run failed. Raises the exception of a bug.
    """
    if outcome.error is not None and not isinstance(outcome.error, RunError):
        raise outcome.error
    if outcome.is_complete:
        summary = outcome.summary
        said = f"Run {outcome.run_id}: {summary.scored} of {summary.rollouts} rollouts scored"
        joined = f". {outcome.joined}" if outcome.joined else ""
        return Completed(message=f"{said}, average reward {summary.avg_reward}{joined}", data=outcome)
    incomplete = IncompleteRunError(outcome)
    level = logging.INFO if outcome.status == "cancelled" else logging.ERROR  # requested by the user
    for reason in outcome.reasons:
        get_run_logger().log(level, reason)
    if outcome.status == "cancelled":
        return Cancelled(message=str(incomplete), data=incomplete)
    return Failed(
        message=str(incomplete), data=incomplete, name="TimedOut" if outcome.status == "timed_out" else "Failed"
    )


def refused(error: NightjarError) -> State[Any]:
    get_run_logger().error(str(error))
    return Failed(message=f"{error}\n{advice_line(failure_class(error))}", data=error)


_SEND_SECONDS = 60.0
_BACK_SECONDS = 600.0
"""How long the run of a worker waits at its end for a server that does not answer."""


def nightjar_log_in_run_log() -> None:
    """Sends Nightjar's log, from INFO on, to Prefect's API as well; installed once per process.

    On a worker, the run no longer depends on the worker, which reads what the run prints.
    """
    if is_unattended():
        survive_reader()
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_is_news)
    for name in ("", "prefect", "prefect.flow_runs", "prefect.task_runs"):
        for each in logging.getLogger(name).handlers:
            each.addFilter(hidden_in_log)
    logger = logging.getLogger("nightjar")
    if not any(isinstance(handler, APILogHandler) for handler in logger.handlers):
        handler = APILogHandler(logging.INFO)
        handler.addFilter(hidden_in_log)
        logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)


async def send_run_log() -> None:
    """Sends the rest of the log and of the task runs before the state of the run says that it has ended."""
    if is_unattended():  # otherwise nobody would learn the end of the run
        await wait_until_back(_BACK_SECONDS)
    await settle()
    if not is_away():
        await APILogWorker.drain_all(timeout=_SEND_SECONDS, at_exit=False)  # type: ignore[misc]


def _is_news(record: logging.LogRecord) -> bool:
    """Drops Prefect's messages about the end of a task or flow: states show the end, and reasons are logged before."""
    return not record.getMessage().startswith("Finished in state ")


logger = logging.getLogger("nightjar.prefect")

_SECONDS = 2.0


@asynccontextmanager
async def progress_artifact(run: Run, key: str) -> AsyncIterator[None]:
    """Shows the progress of a run in an artifact, which is updated every two seconds."""
    is_over = asyncio.Event()
    moving = asyncio.get_running_loop().create_task(_move(run, key, is_over))
    try:
        yield
    finally:
        is_over.set()
        await asyncio.wait([moving], timeout=0 if is_away() else _SECONDS)
        if not moving.cancel() and not moving.cancelled() and (error := moving.exception()):
            logger.warning("The progress of the run could not be shown: %s", error)


async def _move(run: Run, key: str, is_over: asyncio.Event) -> None:
    title = f"{run.metadata.env_id} | {run.metadata.model}: run {run.run_id}"
    artifact: Any = None
    while True:
        has_ended = is_over.is_set()
        if artifact is None:
            create = partial(acreate_progress_artifact, _percent(run), key=f"progress-{key}", description=title)
            artifact = await reach(create)
        else:
            await reach(partial(aupdate_progress_artifact, artifact, _percent(run)))
        if has_ended:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(is_over.wait(), _SECONDS)


def _percent(run: Run) -> float:
    progress = run.progress
    return round(100 * progress.done / progress.total, 2) if progress.total else 100.0
