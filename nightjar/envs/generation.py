"""``Environment.generate``: rollouts from Python, through the same engine as a run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from nightjar.clients import Client, ClientConfig, resolve_client, resolve_client_configs
from nightjar.data import example_hash, fingerprint
from nightjar.engine import Engine, EngineOptions, Group, Plan, Recorder, RetryPolicy, run_groups
from nightjar.envs.datasets import results_dataset, rows_of
from nightjar.envs.keeping import Keeping
from nightjar.envs.outputs import GenerateOutputs, Generation, ProgressCallback, Row
from nightjar.envs.rollouts import EnvironmentRollouts
from nightjar.envs.teardown import tear_down_at_exit
from nightjar.errors import ConfigError
from nightjar.rollout.state import RolloutInput, SamplingArgs, State
from nightjar.runs import new_run_id, runs_folder, summarize_rows

if TYPE_CHECKING:
    from nightjar.envs.environment import Environment

AnyClient: TypeAlias = Client[Any, Any, Any, Any]


async def generate(
    env: Environment,
    inputs: Iterable[RolloutInput],
    client: AnyClient | ClientConfig,
    model: str,
    sampling_args: SamplingArgs,
    how: Generation,
) -> GenerateOutputs:
    """Generates and scores rollouts; inputs of one ``example_id`` form a group.

    Raises:
        ConfigError: the rubric has group functions and scoring is independent.
        RunError: the endpoint refuses everything, or ``results_path`` cannot be used.
    """
    if how.independent_scoring and env.rubric.has_group_rewards and env.score_rollouts:
        raise ConfigError("A rubric with group reward functions cannot score rollouts independently")
    examples: dict[int, list[RolloutInput]] = defaultdict(list)
    for rollout_input in rows_of(inputs):
        examples[rollout_input["example_id"]].append(rollout_input)
    tear_down_at_exit(env)
    asked = resolve_client(client, is_per_rollout=how.independent_scoring)
    facts = _facts(env, asked, model, sampling_args, examples)
    started = time.monotonic()
    try:
        with Keeping(_path(env, model, how), facts, _hashes(examples), how.state_columns or ()) as keeping:
            groups = list(_owed(env, examples, keeping, how))
            _announce(how, examples, groups)
            reporter = _Reporter(keeping, groups, how.progress_callbacks, facts)
            rollouts = EnvironmentRollouts(
                env, asked, model, sampling_args, lambda e, i: cast("dict[str, Any]", deepcopy(examples[e][i]))
            )
            options = EngineOptions(
                max_generating=how.max_concurrent,
                max_scoring=how.max_concurrent,
                score_rollouts=env.score_rollouts,
                retry=RetryPolicy(how.max_retries),
            )
            await run_groups(Engine(rollouts=rollouts, rubric=env.rubric, recorder=reporter, options=options), groups)
            rows = keeping.finish()
            metadata = facts | _aggregates(env, examples, rows, started) | _circumstances(env, how, keeping.path)
            keeping.write_metadata(metadata)
    finally:
        if isinstance(client, ClientConfig):
            await asked.close()
    results = GenerateOutputs(outputs=rows, metadata=metadata)
    if how.push_to_hf_hub:
        name = how.hf_hub_dataset_name or f"{env.env_id}_{model}".replace("/", "-")
        results_dataset(results).push_to_hub(name)
        how.log(f"Pushed {len(rows)} rows to {name}")
    return results


class _Reporter:
    """A recorder that tells callbacks of what another one keeps."""

    def __init__(
        self,
        keeping: Keeping,
        groups: Sequence[Group],
        callbacks: Sequence[ProgressCallback],
        facts: Mapping[str, Any],
    ) -> None:
        self._recorder: Recorder = keeping.recorder
        self._callbacks = callbacks
        self._facts = facts
        owed = {(group.example_id, index) for group in groups for index in group.members}
        kept = (row for row in keeping.rows_before if (row["example_id"], row["rollout_index"]) not in owed)
        self._rows: list[Row] = list(kept) if callbacks else []
        self._rewards = [row["reward"] for row in self._rows if row["reward"] is not None]
        self.attempted = self._recorder.attempted
        self.restore = self._recorder.restore

    def scored(self, states: Sequence[State]) -> Sequence[Row]:
        rows = [dict(row) for row in self._recorder.scored(states)]
        if self._callbacks:
            self._rows.extend(rows)
            self._rewards.extend(row["reward"] for row in rows if row["reward"] is not None)
            mean = sum(self._rewards) / len(self._rewards) if self._rewards else None
            for callback in self._callbacks:
                callback(self._rows, rows, {**self._facts, "avg_reward": mean})
        return rows


def _owed(
    env: Environment, examples: Mapping[int, Sequence[RolloutInput]], keeping: Keeping, how: Generation
) -> Iterator[Group]:
    for example_id, inputs in examples.items():
        plan = Plan(len(inputs), how.independent_scoring, env.rubric.has_group_rewards and env.score_rollouts)
        yield from plan.owed(keeping.recorder, example_id)


def _announce(how: Generation, examples: Mapping[int, list[RolloutInput]], groups: Sequence[Group]) -> None:
    if how.on_start is not None:
        everything = [rollout_input for inputs in examples.values() for rollout_input in inputs]
        owed = [[examples[group.example_id][index] for index in group.members] for group in groups]
        how.on_start(everything, [i for inputs in owed for i in inputs] if how.independent_scoring else owed)
    how.log(f"{sum(len(group.members) for group in groups)} rollouts to do")


def _path(env: Environment, model: str, how: Generation) -> Path | None:
    if how.results_path is None and how.save_results:
        return runs_folder(env.env_id or type(env).__name__, model, None) / new_run_id()
    return None if how.results_path is None else Path(how.results_path)


def _hashes(examples: Mapping[int, Sequence[RolloutInput]]) -> dict[int, str]:
    return {example_id: _hash(inputs) for example_id, inputs in examples.items()}


def _hash(inputs: Sequence[RolloutInput]) -> str:
    """Identifies what the inputs of one ``example_id`` hold: mostly it is the same thing several times."""
    different = {id(rollout_input): rollout_input for rollout_input in inputs}
    hashes = dict.fromkeys(example_hash(rollout_input) for rollout_input in different.values())
    return next(iter(hashes)) if len(hashes) == 1 else fingerprint(hashes)


def _facts(
    env: Environment,
    client: AnyClient,
    model: str,
    sampling_args: SamplingArgs,
    examples: Mapping[int, Sequence[RolloutInput]],
) -> dict[str, Any]:
    config: ClientConfig | None = getattr(client, "config", None)
    urls = [replica.api_base_url for replica in resolve_client_configs(config)] if config else []
    return {
        "env_id": env.env_id,
        "env_args": env.env_args,
        "model": model,
        "base_url": ",".join(urls) or None,
        "api_client_type": config.client_type if config else type(client).__name__,
        "num_examples": len(examples),
        "rollouts_per_example": max(map(len, examples.values()), default=0),
        "sampling_args": sampling_args,
        "shuffle_seed": None,
        "pass_threshold": env.pass_threshold,
    }


def _circumstances(env: Environment, how: Generation, path: Path | None) -> dict[str, Any]:
    from nightjar import __version__
    from nightjar.envs.loading import environment_version

    env_version = environment_version(env.env_id) if env.env_id else None
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "state_columns": list(how.state_columns or ()),
        "path_to_save": path,
        "version_info": {"nightjar_version": __version__, "env_version": env_version},
    }


def _aggregates(
    env: Environment, examples: Mapping[int, Sequence[RolloutInput]], rows: Sequence[Row], started: float
) -> dict[str, Any]:
    counts = [len(inputs) for inputs in examples.values()]
    summary = summarize_rows(
        rows, rollouts=sum(counts), rollouts_per_example=max(counts, default=0), pass_threshold=env.pass_threshold
    )
    seconds = time.monotonic() - started
    return {"time": seconds, "time_ms": round(seconds * 1000), **summary.metadata()}
