"""Turns a configuration, or a run whose rollouts are scored again, into an open run with its remaining rollouts."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from nightjar.clients import resolve_client
from nightjar.clients.client import AnyClient, UnaskedClient
from nightjar.core.environment_id import EnvironmentId
from nightjar.core.files import replace_file
from nightjar.core.messages import dump_messages, normalize_messages
from nightjar.core.parts import Part
from nightjar.core.secrecy import resolve
from nightjar.core.text import counted
from nightjar.engine import Engine, EngineOptions, RetryPolicy, Run
from nightjar.engine.limits import shared_budget
from nightjar.engine.runs import OpenRun, RunDirectory, RunMetadata, new_run_id, runs_folder
from nightjar.engine.runs.identity import fingerprint
from nightjar.engine.runs.jsonl import JsonLines, parse_line, whole_lines
from nightjar.environments import Environment, EnvironmentRollouts, tear_down
from nightjar.errors import ConfigError, RunDirectoryError
from nightjar.evaluation.checking import check_engines, check_environments
from nightjar.evaluation.config import RunConfig
from nightjar.evaluation.hub import BLOCK
from nightjar.evaluation.preparation import Prepared, keep_parsed_answers, prepare
from nightjar.evaluation.resuming import failed_where, find_resumable, saved_config

logger = logging.getLogger(__name__)

_MOST_SHARDS = 16
_SHARD_ROLLOUTS = 20
_PATIENCE_SECONDS = 60.0
"""How long the retry of a flow run waits for the process that is still publishing the earlier results."""

_COPIED = ("env_args", "extra_env_kwargs", "model", "api_client_type", "rollouts_per_example", "sampling_args", "tags",
           "suite", "name")  # fmt: skip
"""Fields of the configuration that are also in the metadata."""

LATEST = "latest"
"""Value of ``resume`` for the newest unfinished run with the same settings, else the newest finished run."""


def load_env(
    config: RunConfig,
    *,
    output_dir: Path | None = None,
    resume: str | None = None,
    where: str = "",
    run_id: str | None = None,
    flow_run_id: str | None = None,
    env: Environment | None = None,
) -> Run:
    """Loads the environment, selects its examples, opens the run directory and finds the remaining rollouts.

    ``resume`` is a run directory or ``"latest"``. When resuming, ``where`` retries only the failed rollouts that match.
    A run that already has ``run_id`` is resumed. With ``env``, this environment is used and not torn down at the end.
    """
    if (config.hf_hub_dataset_name or "").startswith(BLOCK):
        raise ConfigError(
            f"hf_hub_dataset_name: only the flow 'evaluate' reads blocks (found {config.hf_hub_dataset_name!r}). "
            "Name the dataset, such as owner/name, or run with --prefect"
        )
    if env is None:
        check_environments([config])
        check_engines([config])
    client = resolve_client(config.client_config(), is_per_rollout=config.independent_scoring)
    resolve(config.sampling_args.get("extra_headers") or {})
    if config.cache:
        from nightjar.clients.answer_cache import AnswerCache, CachingClient, cache_path

        client = CachingClient(client, AnswerCache(cache_path()), config.base_url)
    prepared = prepare(config, env=env)
    directory = _directory(config, len(prepared.hashes), output_dir, resume, config.part or run_id)
    if config.middleware:
        from nightjar.clients.middleware_client import with_middleware

        client = with_middleware(client, config.middleware, directory.path)  # it sees cached requests, too
    if where:
        prepared = replace(prepared, plan=replace(prepared.plan, chosen=failed_where(directory, where)))
    return _open_run(prepared, client, directory, flow_run_id=flow_run_id)


def load_rescored(
    source: RunDirectory,
    *,
    rubric: str | None = None,
    env_args: Mapping[str, Any] | None = None,
    max_concurrent_scoring: int | None = None,
    output_dir: Path | None = None,
    part: Part | None = None,
) -> Run:
    """Opens a new run that scores everything that was generated in ``source``, which is not changed.

    ``rubric`` is ``path/to/file.py:NAME``. If ``output_dir`` is None, the new run is in the folder of the source. With
    ``part``, only the examples of the part are scored.
    """
    taken = {"num_examples": source.read_config()["selected_examples"]}
    config = saved_config(source).model_copy(update=taken)
    if config.part:
        raise ConfigError(f"Run {source.run_id!r} is a part of a run: score the joined run again")
    changed = {"env_args": {**config.env_args, **(env_args or {})}, "save_to_hf_hub": False}
    changed |= {"part": str(part)} if part else {}
    limit = {"max_concurrent_scoring": max_concurrent_scoring} if max_concurrent_scoring else {}
    config = config.model_copy(update={**changed, **limit})
    prepared = prepare(config, rubric)
    _check_examples(source, prepared)
    folder = runs_folder(config.env_id, config.model, output_dir) if output_dir else source.path.parent
    directory = RunDirectory(folder / (str(part) if part else new_run_id()))
    _copy_rollouts(source, directory, prepared.hashes if part else None)
    plan = replace(prepared.plan, asks_model=False)
    return _open_run(replace(prepared, plan=plan), UnaskedClient(), directory, rescored_from=source.run_id)


def _check_examples(source: RunDirectory, prepared: Prepared) -> None:
    """Checks that the environment still has the examples of the source. Only their answer and info may differ."""
    hashes, examples = prepared.whole, prepared.env.examples
    rows = (line.row for line in chain(source.attempts(), source.results()))
    other = {row["example_id"] for row in rows if hashes.get(row["example_id"]) != row.get("example_hash")}
    results = (line.row for line in source.results()) if other else ()
    asked = {row["example_id"]: row["prompt"] for row in results if row["example_id"] in other & hashes.keys()}
    mended = {
        each for each, prompt in asked.items() if dump_messages(normalize_messages(examples[each]["prompt"])) == prompt
    }
    if lost := sorted(other - mended):
        raise ConfigError(
            f"{counted(len(lost), 'example')} of run {source.run_id!r} differ from the examples that environment "
            f"{prepared.config.env_id!r} has now, for instance example {lost[0]}: the dataset has changed"
        )
    if mended:
        logger.warning("%d examples have a new answer or info, which is used for scoring", len(mended))


def _copy_rollouts(source: RunDirectory, directory: RunDirectory, taken: Container[int] | None) -> None:
    """Copies the ledger and the failed generations of the examples in ``taken``; None means all examples."""
    try:
        directory.path.mkdir(parents=True)
        shutil.copyfile(source.attempts_path, directory.attempts_path)
    except OSError as error:
        shutil.rmtree(directory.path, ignore_errors=True)
        reason = f"{error.strerror}: {error.filename}"
        raise RunDirectoryError(f"Run {source.run_id!r} cannot be scored again: {reason}") from error
    if taken is not None:
        path = directory.attempts_path
        lines = ((raw.text, parse_line(raw.text, path, raw.number)["example_id"]) for raw in whole_lines(path))
        replace_file(path, (line for line, example_id in lines if example_id in taken))
    generated = {line.key for line in source.attempts() if line.row["error"] is None}
    failed = (line for line in source.results() if line.row["error"] is not None and line.key not in generated)
    results = JsonLines(directory.results_path)
    results.append([line.row for line in failed if taken is None or line.key.example_id in taken])
    results.close()


def _open_run(
    prepared: Prepared,
    client: AnyClient,
    directory: RunDirectory,
    *,
    flow_run_id: str | None = None,
    rescored_from: str | None = None,
) -> Run:
    config, env = prepared.config, prepared.env
    scoring = {"rescored_from": rescored_from, "rubric": prepared.rubric}
    whole: dict[str, Any] = {}
    if config.part:  # so that joining the parts needs no environment
        known = {"num_examples": len(prepared.whole), "dataset_fingerprint": fingerprint(prepared.whole.values())}
        whole = {"whole": known}
    state_columns = dict.fromkeys([*env.state_columns, *config.state_columns, *keep_parsed_answers(env)])
    metadata = _metadata(prepared, directory.run_id, state_columns, flow_run_id, rescored_from)
    opened = OpenRun(
        directory,
        metadata,
        config=config.model_dump(mode="json") | scoring | whole,
        identity=config.identity() | scoring,
        hashes=prepared.hashes,
        tolerated_failures=config.tolerated_failures,
    )
    env.run_folder = directory.path
    if (budget := shared_budget.get()) is not None and rescored_from is None:
        budget.add(*opened.journal.tokens_before, model=config.model)
    rollouts = EnvironmentRollouts(env, client, config.model, config.sampling_args)
    engine = Engine(
        rollouts=rollouts, rubric=env.rubric, recorder=opened.journal, options=_options(config, env, opened)
    )
    chosen = prepared.plan.chosen
    run = Run(
        opened,
        engine,
        replace(prepared.plan, chosen=None if chosen is None else chosen | opened.outdated),
        list(prepared.hashes),
        max_shards=config.max_shards or max(1, min(_MOST_SHARDS, metadata.rollouts // _SHARD_ROLLOUTS)),
        is_interleaved=config.interleave_scoring,
        time_limit_seconds=None if config.timeout_minutes is None else 60 * config.timeout_minutes,
        closing=[*([] if prepared.is_kept else [partial(tear_down, env)]), client.close],
        paces=client.paces,
    )
    logger.info(
        "Run %s %s: %d rollouts, %d done before, in %s",
        run.run_id, "resumed" if opened.is_resumed else "started", metadata.rollouts, run.progress.already_done,
        directory.path,
    )  # fmt: skip
    return run


def _directory(
    config: RunConfig, num_examples: int, output_dir: Path | None, resume: str | None, run_id: str | None
) -> RunDirectory:
    folder = runs_folder(config.env_id, config.model, output_dir, config.environments_dir)
    if run_id is not None and RunDirectory(folder / run_id).exists():
        return RunDirectory(folder / run_id, _PATIENCE_SECONDS)  # this is the retry of a flow run
    if resume == LATEST:
        found = find_resumable(config.model_copy(update={"num_examples": num_examples}), output_dir)
        if found is not None:
            return found
        logger.warning("There is no run to resume: starting a new one")
    elif resume is not None:
        directory = RunDirectory(Path(resume))
        directory.read_config()
        return directory
    return RunDirectory(folder / (run_id or new_run_id()))


def _metadata(
    prepared: Prepared, run_id: str, state_columns: Iterable[str], flow_run_id: str | None, rescored_from: str | None
) -> RunMetadata:
    config = prepared.config
    return RunMetadata(
        **{name: getattr(config, name) for name in _COPIED},
        run_id=run_id,
        env_id=EnvironmentId.parse(config.env_id).without_version,
        env_version=prepared.versions["env_version"],
        base_url=",".join(dict.fromkeys(one.base_url for one in config.replicas)) or config.base_url,
        num_examples=len(prepared.hashes),
        rollouts=len(prepared.hashes) * config.rollouts_per_example,
        dataset_fingerprint=fingerprint(prepared.hashes.values()),
        pass_threshold=prepared.env.pass_threshold,
        reward_weights=prepared.env.rubric.reward_weights,
        state_columns=list(state_columns),
        version_info=prepared.versions,
        flow_run_id=flow_run_id,
        rescored_from=rescored_from,
    )


def _options(config: RunConfig, env: Environment, opened: OpenRun) -> EngineOptions:
    return EngineOptions(
        max_generating=config.max_concurrent_generation or config.max_concurrent,
        max_scoring=config.max_concurrent_scoring or config.max_concurrent,
        is_interleaved=config.interleave_scoring,
        score_rollouts=env.score_rollouts,
        has_succeeded=opened.journal.has_generated,
        retry=RetryPolicy(max_retries=config.max_retries),
        budget=shared_budget.get(),
        model=config.model,
        patience_seconds=60 * (config.wait_for_endpoint or 0),
    )
