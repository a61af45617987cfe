"""The five stages of a run, each implemented once.

``load_env``, ``generate``, ``score``, ``aggregate``, ``publish``: the Prefect flow and direct mode order them,
and do nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nightjar
from nightjar import __version__
from nightjar.clients import resolve_client
from nightjar.config import RunConfig
from nightjar.engine import Engine, EngineOptions, Plan, RetryPolicy, Shard
from nightjar.envs import (
    Environment,
    EnvironmentRollouts,
    environment_commit,
    environment_version,
    environments_in,
    load_environment,
)
from nightjar.errors import ConfigError, DatasetError, RunDirectoryError
from nightjar.evaluation.publishing import check_warehouse, publish
from nightjar.evaluation.run import Run, watcher
from nightjar.evaluation.selection import (
    Selection,
    check_resumable,
    find_resumable,
    select_examples,
)
from nightjar.evaluation.settings import apply_settings
from nightjar.packages import source_commit
from nightjar.packages.aliases import preferred
from nightjar.runs import Journal, RunDirectory, Summary, new_run_id, runs_folder, summarize_rows
from nightjar.runs.columns import StateColumns
from nightjar.runs.jsonl import scan_lines

__all__ = ["LATEST", "aggregate", "check_warehouse", "generate", "load_env", "publish", "score"]

logger = logging.getLogger(__name__)

LATEST = "latest"
"""Asks ``load_env`` to resume the newest run that is not complete."""


def load_env(
    config: RunConfig,
    *,
    output_dir: Path | None = None,
    resume: str | None = None,
    run_id: str | None = None,
    flow_run_id: str | None = None,
) -> Run:
    """Resolves the environment, selects its examples, opens the run directory and works out what is owed.

    Args:
        config: what to run.
        output_dir: None for ``./outputs``, or the environment's own where it has one.
        resume: a run directory to go on with, ``"latest"`` for the newest that is not complete, None for a new run.
        run_id: the id of the run; a run of this id that is there already is gone on with.
        flow_run_id: of the Prefect flow run, for the record.

    Raises:
        ConfigError: the environment, its arguments, its dataset or the endpoint's key is missing or wrong.
        RunError: the run directory is locked, damaged, or of another run.
    """
    client = resolve_client(config.client_config(), is_per_rollout=config.independent_scoring)
    with environments_in(config.environments_dir), preferred():
        env = load_environment(config.env_id, **config.env_args)
        version, commit = environment_version(config.env_id), environment_commit(config.env_id)
    apply_settings(env, config.extra_env_kwargs)
    if config.scoring_timeout is not None:
        env.rubric.set_timeout_seconds(config.scoring_timeout)
    plan = _plan(config, env)
    selection = select_examples(env.examples, config)
    if not selection.hashes:
        raise DatasetError(f"Environment {config.env_id!r} has no examples")
    resolved = config.model_copy(update={"num_examples": len(selection.hashes)})
    directory = _directory(resolved, output_dir, resume, run_id)
    with ExitStack() as opened:
        opened.enter_context(directory)
        directory.reserve_room()
        is_resumed = directory.exists()
        if is_resumed:
            check_resumable(directory, config, selection, version)
        facts = _facts(config, selection, version, commit, directory, flow_run_id, env.pass_threshold)
        journal = Journal(directory, selection.hashes.__getitem__, config.state_columns)
        opened.callback(journal.close)
        directory.write_config(
            {
                **config.model_dump(mode="json"),
                "selected_examples": len(selection.hashes),
                "dataset_fingerprint": selection.fingerprint(),
                "env_version": version,
            }
        )
        rollouts = EnvironmentRollouts(env, client, config.model, config.sampling_args)
        run = Run(
            config=config,
            directory=directory,
            env=env,
            client=client,
            selection=selection,
            journal=journal,
            engine=_engine(config, rollouts, env, journal),
            plan=plan,
            shards=plan.shards(journal, list(selection.hashes), config.max_shards),
            facts=facts,
            is_resumed=is_resumed,
        )
        _count_what_is_done(run)
        directory.write_metadata(run.metadata("running"))
        opened.pop_all()
    logger.info(
        "Run %s %s: %d rollouts, %d done before, in %s",
        run.run_id, "resumed" if is_resumed else "started", run.rollouts, run.progress.already_done, directory.path,
    )  # fmt: skip
    if watch := watcher.get(None):
        watch(run)
    return run


async def generate(run: Run, shard: Shard) -> int:
    """Generates what a shard owes; groups go on to scoring as they are done.

    Returns:
        How many groups there were.

    Raises:
        RunAbortedError: the endpoint refuses everything.
        RunDirectoryError: the disk is full or broken.
    """
    groups = (group for example_id in shard.owed for group in run.plan.owed(run.journal, example_id))
    await run.engine.generate(groups, run.queue(shard))
    logger.info("Generated %s", shard.label)
    return len(shard.owed)


async def score(run: Run, shard: Shard) -> int:
    """Scores and records a shard's groups as they come.

    Returns:
        How many groups there were.
    """
    await run.engine.score(run.queue(shard))
    logger.info("Scored %s", shard.label)
    return len(shard.owed)


def aggregate(run: Run, error: BaseException | None = None) -> Summary:
    """Puts the results in order, adds them up, and replaces ``metadata.json``.

    A disk that is full or broken here stops the run like one that was before: what is on it is added up.

    Args:
        run: the run, of which nothing is under way any more.
        error: what stopped it before its end; None where it came to its end.

    Raises:
        RunDirectoryError: ``metadata.json`` cannot be written.
    """
    try:
        run.journal.finish()
        rows: Iterable[dict[str, Any]] = (line.row for line in scan_lines(run.directory.results_path))
    except RunDirectoryError as broken:
        rows = run.journal.rows()
        error = error or broken
    summary = summarize_rows(
        rows,
        rollouts=run.rollouts,
        rollouts_per_example=run.config.rollouts_per_example,
        pass_threshold=run.env.pass_threshold,
    )
    run.summary, run.error = summary, error
    _warn_of_unknown_columns(run.journal.columns)
    status = _status(run, summary, error)
    run.directory.write_metadata(run.metadata(status, summary))
    logger.info(
        "Run %s is %s: %d of %d rollouts scored, %d failed, average reward %s",
        run.run_id, status, summary.scored, summary.rollouts, summary.failed, summary.avg_reward,
    )  # fmt: skip
    return summary


def _warn_of_unknown_columns(columns: StateColumns) -> None:
    if columns.unknown:
        logger.warning(
            "No rollout has the state columns (-C) %s: they are null in its results. Choose among: %s",
            ", ".join(map(repr, columns.unknown)),
            ", ".join(columns.choices),
        )


def _status(run: Run, summary: Summary, error: BaseException | None) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if error is not None:
        return "failed"
    missing = summary.rollouts - summary.scored
    return "completed" if missing <= run.config.tolerated_failures * summary.rollouts else "incomplete"


def _plan(config: RunConfig, env: Environment) -> Plan:
    whole_groups = env.rubric.has_group_rewards and env.score_rollouts
    if whole_groups and config.independent_scoring:
        raise ConfigError(
            f"Environment {config.env_id!r} has group reward functions, which --independent-scoring cannot call"
        )
    return Plan(config.rollouts_per_example, config.independent_scoring, whole_groups)


def _directory(config: RunConfig, output_dir: Path | None, resume: str | None, run_id: str | None) -> RunDirectory:
    folder = runs_folder(config.env_id, config.model, output_dir, config.environments_dir)
    if run_id is not None and RunDirectory(folder / run_id).exists():
        return RunDirectory(folder / run_id)  # the retry of a flow run
    if resume == LATEST:
        found = find_resumable(config, output_dir)
        if found is not None:
            return found
        logger.warning("No incomplete run to resume: starting a new one")
    elif resume is not None:
        directory = RunDirectory(Path(resume))
        directory.read_config()
        return directory
    return RunDirectory(folder / (run_id or new_run_id()))


def _engine(config: RunConfig, rollouts: EnvironmentRollouts, env: Environment, journal: Journal) -> Engine:
    options = EngineOptions(
        max_generating=config.max_concurrent_generation or config.max_concurrent,
        max_scoring=config.max_concurrent_scoring or config.max_concurrent,
        is_interleaved=config.interleave_scoring,
        score_rollouts=env.score_rollouts,
        has_succeeded=journal.has_generated,
        retry=RetryPolicy(max_retries=config.max_retries),
    )
    return Engine(rollouts=rollouts, rubric=env.rubric, recorder=journal, options=options)


def _count_what_is_done(run: Run) -> None:
    to_score = {
        key for shard in run.shards for example_id in shard.owed for key in run.plan.members(run.journal, example_id)
    }
    rewards = [reward for key, reward in run.journal.rewards() if key not in to_score]
    progress = run.progress
    progress.total = run.rollouts
    progress.already_done = run.rollouts - len(to_score)
    progress.reward_sum, progress.reward_count = sum(rewards), len(rewards)


def _facts(
    config: RunConfig,
    selection: Selection,
    env_version: str | None,
    env_commit: str | None,
    directory: RunDirectory,
    flow_run_id: str | None,
    pass_threshold: float,
) -> dict[str, Any]:
    now = datetime.now(UTC)
    before = directory.read_metadata() if (directory.path / "metadata.json").is_file() else {}
    return {
        "env_id": before.get("env_id") or config.env_id.partition("@")[0],
        "env_args": config.env_args,
        "extra_env_kwargs": config.extra_env_kwargs,
        "env_version": env_version,
        "model": config.model,
        "base_url": config.base_url,
        "num_examples": len(selection.hashes),
        "rollouts_per_example": config.rollouts_per_example,
        "sampling_args": config.sampling_args,
        "dataset_fingerprint": selection.fingerprint(),
        "date": before.get("date") or now.date().isoformat(),
        "time": before.get("time") or now.time().isoformat(timespec="seconds"),
        "time_ms": before.get("time_ms") or 0,
        "started_at": before.get("started_at") or now.isoformat(timespec="seconds"),
        "pass_threshold": pass_threshold,
        "state_columns": config.state_columns,
        "tags": config.tags,
        "suite": config.suite,
        "version_info": {
            "nightjar_version": __version__,
            "nightjar_commit": source_commit(Path(nightjar.__file__)),
            "env_version": env_version,
            "env_commit": env_commit,
        },
        "flow_run_id": flow_run_id,
    }
