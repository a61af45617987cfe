"""``evaluate`` and ``evaluate_async``: run an evaluation from a script or a notebook, and publish it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from nightjar.api.background import Work, run_in_thread, wait_for_thread
from nightjar.api.run import Run, open_run
from nightjar.api.settings import RunSettings, shows_settings
from nightjar.core.text import counted, nearest
from nightjar.engine.runs import RunDirectory
from nightjar.environments import Environment
from nightjar.errors import ConfigError, RunError
from nightjar.evaluation import Outcome, check_named_keys
from nightjar.evaluation import evaluate as evaluate_directly
from nightjar.evaluation.config.precedence import FLAG, Evaluation, Layer, resolve_evaluation
from nightjar.evaluation.loading import LATEST
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.warehouse import Warehouse

logger = logging.getLogger(__name__)

_OF_LOADING = (
    "env_source",
    "env_args",
    "extra_env_kwargs",
    "env_dir_path",
    "timeout",
    "max_sandboxes",
    "scoring_timeout",
)
"""Settings that load or change an environment. An environment that is given as an object is used as it is."""


@shows_settings
def evaluate(
    env: str | Path | Environment,
    *,
    resume: bool | str | Path | Run = False,
    output_dir: str | Path | None = None,
    warehouse: str | Path | Warehouse | None = None,
    progress: bool | None = None,
    **settings: Unpack[RunSettings],
) -> Run:
    """Evaluates a model in an environment, publishes the run, and returns it.

    Does the same as ``nightjar eval run --direct``: settings that are not given come from the endpoint registry, the
    environment's ``pyproject.toml`` and ``nightjar config``. Also works where an event loop runs, such as in Jupyter.
    An interrupt (Ctrl-C, or "Interrupt" in Jupyter) stops the run, publishes the finished rollouts, and raises
    ``KeyboardInterrupt``; the same call with ``resume=True`` does the rest.

    Args:
        env: the name of an environment, the path of its file, or an ``Environment``. A run of an ``Environment`` is
            published like others, but ``nightjar eval retry`` and ``rescore`` need an environment that has a name.
        **settings: the fields of ``RunConfig``.
        resume: True resumes the newest unfinished run with the same settings, else the newest finished run, and
            starts a new run if there is none. A run, its id or its directory is resumed with the settings of this call.
        output_dir: the folder for run directories (default: ``./outputs``).
        warehouse: where the run is published (default: ``NIGHTJAR_WAREHOUSE``, else ``./outputs/warehouse``).
        progress: show a progress bar (default: in a notebook and on a terminal).

    Returns:
        The run. If rollouts failed, or if a limit of time, tokens or cost stopped the run, ``run.status`` says so, and
        a warning is logged.

    Raises:
        ConfigError: if a setting is wrong, or if the environment or a key is missing.
        RunError: if the run cannot start, or if it failed, for instance because the endpoint refuses every request.
        WarehouseError: if the warehouse cannot be written; no request was made.

    Example:
        >>> run = evaluate("gsm8k", model="openai/gpt-4.1-mini", num_examples=100)  # doctest: +SKIP
        >>> run.summary.mean, run.summary.interval  # doctest: +SKIP
    """
    work, target = _prepared(env, settings, resume, output_dir, warehouse)
    return _stored(run_in_thread(work, progress), target)


@shows_settings
async def evaluate_async(
    env: str | Path | Environment,
    *,
    resume: bool | str | Path | Run = False,
    output_dir: str | Path | None = None,
    warehouse: str | Path | Warehouse | None = None,
    progress: bool | None = None,
    **settings: Unpack[RunSettings],
) -> Run:
    """Evaluates a model in an environment, like ``evaluate``, while the event loop of the caller goes on.

    The run has a thread and an event loop of its own. Cancelling the caller's task stops the run, publishes the
    finished rollouts, and raises ``CancelledError``; the same call with ``resume=True`` does the rest.

    Args:
        env: the name of an environment, the path of its file, or an ``Environment``.
        **settings: the fields of ``RunConfig``.
        resume: True resumes the newest unfinished run with the same settings; see ``evaluate``.
        output_dir: the folder for run directories (default: ``./outputs``).
        warehouse: where the run is published (default: ``NIGHTJAR_WAREHOUSE``, else ``./outputs/warehouse``).
        progress: show a progress bar (default: in a notebook and on a terminal).

    Returns:
        The run, as ``evaluate`` returns it.

    Raises:
        ConfigError: if a setting is wrong, or if the environment or a key is missing.
        RunError: if the run cannot start, or if it failed, for instance because the endpoint refuses every request.
        WarehouseError: if the warehouse cannot be written; no request was made.

    Example:
        >>> runs = await asyncio.gather(  # doctest: +SKIP
        ...     evaluate_async("gsm8k", model="small"), evaluate_async("gsm8k", model="large")
        ... )
    """
    work, target = _prepared(env, settings, resume, output_dir, warehouse)
    return _stored(await wait_for_thread(work, progress), target)


def _prepared(
    env: str | Path | Environment,
    settings: RunSettings,
    resume: bool | str | Path | Run,
    output_dir: str | Path | None,
    warehouse: str | Path | Warehouse | None,
) -> tuple[Work, Warehouse]:
    """Checks the arguments, and returns the evaluation and the warehouse of its run."""
    if unknown := settings.keys() - RunSettings.__annotations__.keys():
        name = min(unknown)
        raise ConfigError(f"Unknown setting {name!r}. {nearest(name, RunSettings.__annotations__)}")
    evaluation = _evaluation(env, {name: value for name, value in settings.items() if value is not None})
    target = Warehouse.of(warehouse)
    check_named_keys([evaluation])
    work = partial(
        evaluate_directly,
        evaluation.config,
        warehouse=target,
        output_dir=None if output_dir is None else Path(output_dir),
        resume=_resumed(resume),
        env=env if isinstance(env, Environment) else None,
    )
    return lambda on_open: work(on_open=on_open), target


def _evaluation(env: str | Path | Environment, given: Mapping[str, Any]) -> Evaluation:
    if not isinstance(env, Environment):
        return resolve_evaluation([Layer(FLAG, {**given, "env_id": str(env)})])
    if unused := [name for name in _OF_LOADING if name in given]:
        raise ConfigError(f"{', '.join(unused)}: set these on the environment, which is given as an object")
    named = {"env_id": env.env_id or type(env).__name__, "env_args": env.env_args}
    return resolve_evaluation([Layer(FLAG, {**given, **named})])


def _resumed(resume: bool | str | Path | Run) -> str | None:
    """Returns the run directory to resume, or ``LATEST``."""
    if isinstance(resume, bool):
        return LATEST if resume else None
    if not isinstance(resume, Run):
        if Path(resume).is_dir():
            return str(resume)
        resume = open_run(resume)
    return str(resume.stored.directory.path)


def _stored(outcome: Outcome, target: Warehouse) -> Run:
    """Returns the run of an outcome. Raises ``KeyboardInterrupt`` or ``RunError`` if it was stopped or failed."""
    if outcome.status == "cancelled":
        summary = outcome.summary
        raise KeyboardInterrupt(
            f"Run {outcome.run_id} was stopped with {summary.scored} of {counted(summary.rollouts, 'rollout')} scored. "
            "To resume it, repeat the call with resume=True"
        )
    if outcome.status == "failed" and isinstance(outcome.error, RunError):
        outcome.error.add_note(f"Finished rollouts are in run {outcome.run_id}. To resume it: resume=True")
        raise outcome.error
    for reason in outcome.reasons if not outcome.is_complete else ():
        logger.warning("%s", reason)
    return Run(StoredRun(RunDirectory(outcome.path).read_metadata(), outcome.path, target))
