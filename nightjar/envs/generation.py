"""``generate`` and single groups: rollouts from Python, through the same engine and run directories as every run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from nightjar.clients import ClientConfig, resolve_client, resolve_client_configs
from nightjar.data import example_hash, fingerprint
from nightjar.engine import Engine, EngineOptions, Group, Plan, RetryPolicy, Run, run_groups
from nightjar.envs.datasets import hub_dataset_name, results_dataset, rows_of
from nightjar.envs.outputs import GenerateOutputs, Generation, Row
from nightjar.envs.rollouts import AnyClient, EnvironmentRollouts, RunnableEnvironment, plan_groups
from nightjar.envs.teardown import tear_down_at_exit
from nightjar.packages import version_info
from nightjar.rollout.state import RolloutInput, SamplingArgs, State
from nightjar.runs import OpenRun, RunDirectory, RunMetadata, new_run_id, runs_folder


async def generate(
    env: RunnableEnvironment,
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
    examples: dict[int, list[RolloutInput]] = defaultdict(list)
    for rollout_input in rows_of(inputs):
        examples[rollout_input["example_id"]].append(rollout_input)
    tear_down_at_exit(env)
    async with _connected(client, how.independent_scoring) as connected:
        asked = _Asked(env, connected, model, sampling_args, examples)
        async with _open(asked, how) as run:
            async with run.stages() as stages:
                for shard in run.shards:
                    stages.create_task(run.generate(shard))
                    stages.create_task(run.score(shard))
            run.aggregate()
            if run.error is not None:
                raise run.error
            results = _results(run)
    if how.push_to_hf_hub:
        name = how.hf_hub_dataset_name or hub_dataset_name(results["metadata"])
        results_dataset(results).push_to_hub(name, private=True)
        how.log(f"Pushed {len(results['outputs'])} rows to {name}")
    return results


async def generate_group(
    env: RunnableEnvironment,
    inputs: Sequence[RolloutInput],
    client: AnyClient | ClientConfig,
    model: str,
    sampling_args: SamplingArgs | None = None,
    max_retries: int = 0,
) -> list[State]:
    """Generates and scores the rollouts of one group, and returns their states in the order of the inputs."""
    if not inputs:
        return []
    tear_down_at_exit(env)
    example_id, recorder = inputs[0]["example_id"], _States()
    options = EngineOptions(
        max_generating=-1, max_scoring=-1, score_rollouts=env.score_rollouts, retry=RetryPolicy(max_retries)
    )
    async with _connected(client) as connected:
        asked = _Asked(env, connected, model, sampling_args or {}, {example_id: list(inputs)})
        engine = Engine(rollouts=asked.rollouts(), rubric=env.rubric, recorder=recorder, options=options)
        await run_groups(engine, [Group(example_id, tuple(range(len(inputs))))])
    return recorder.scored_states


async def generate_one(env: RunnableEnvironment, *args: Any, sem: Any = None, **kwargs: Any) -> State:
    """Generates and scores one rollout; a semaphore as the first argument is held meanwhile."""
    if args and hasattr(args[0], "acquire"):
        sem, *args = args  # type: ignore[assignment]
    names = ("input", "client", "model", "sampling_args", "max_retries")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    inputs, how = [given["input"]], {name: given[name] for name in names[1:] if name in given}
    async with sem or nullcontext():
        [state] = await generate_group(env, inputs, **how)
    return state


@asynccontextmanager
async def _connected(client: AnyClient | ClientConfig, is_per_rollout: bool = False) -> AsyncIterator[AnyClient]:
    """Gives a client, which is closed at the end where it was made here."""
    connected = resolve_client(client, is_per_rollout=is_per_rollout)
    try:
        yield connected
    finally:
        if isinstance(client, ClientConfig):
            await connected.close()


@dataclass(frozen=True)
class _Asked:
    """What is asked of whom: the inputs of each example, and the model they go to."""

    env: RunnableEnvironment
    client: AnyClient
    model: str
    sampling_args: SamplingArgs
    examples: dict[int, list[RolloutInput]]

    def rollouts(self) -> EnvironmentRollouts:
        """Returns the attempts at these inputs, each with a copy of its own."""
        return EnvironmentRollouts(
            self.env, self.client, self.model, self.sampling_args,
            lambda example_id, index: cast("dict[str, Any]", deepcopy(self.examples[example_id][index])),
        )  # fmt: skip

    def plan(self, is_independent: bool) -> Plan:
        """Returns how the inputs form groups."""
        counts = {example_id: len(inputs) for example_id, inputs in self.examples.items()}
        return plan_groups(self.env, max(counts.values(), default=0), is_independent, counts)

    def open(self, directory: RunDirectory | None, plan: Plan, state_columns: Sequence[str]) -> OpenRun:
        """Opens a run of these inputs, on disk or in memory."""
        hashes = {example_id: _hash(inputs) for example_id, inputs in self.examples.items()}
        config: ClientConfig | None = getattr(self.client, "config", None)
        urls = [replica.api_base_url for replica in resolve_client_configs(config)] if config else []
        versions = version_info(self.env.env_id)
        metadata = RunMetadata(
            run_id=directory.run_id if directory else new_run_id(),
            env_id=self.env.env_id,
            env_args=self.env.env_args,
            env_version=versions["env_version"],
            model=self.model,
            base_url=",".join(urls) or None,
            api_client_type=config.client_type if config else None,
            num_examples=len(self.examples),
            rollouts_per_example=plan.rollouts_per_example,
            rollouts=sum(plan.rollouts.values()),
            sampling_args=self.sampling_args,
            dataset_fingerprint=fingerprint(hashes.values()),
            pass_threshold=self.env.pass_threshold,
            state_columns=list(state_columns),
            version_info=versions,
        )
        identity = {
            "env_id": metadata.env_id,
            "env_args": metadata.env_args,
            "extra_env_kwargs": metadata.extra_env_kwargs,
            "model": metadata.model,
            "base_url": metadata.base_url,
            "api_client_type": config.client_type if config else type(self.client).__name__,
            "rollouts_per_example": metadata.rollouts_per_example,
            "sampling_args": metadata.sampling_args,
            "shuffle_seed": None,
        }
        settings = {**identity, "num_examples": metadata.num_examples, "pass_threshold": metadata.pass_threshold}
        return OpenRun(directory, metadata, config=settings, identity=identity, hashes=hashes)


def _open(asked: _Asked, how: Generation) -> Run:
    plan = asked.plan(how.independent_scoring)
    columns = [*dict.fromkeys([*asked.env.state_columns, *(how.state_columns or ())])]
    opened = asked.open(_directory(asked, how), plan, columns)
    groups = [group for example_id in asked.examples for group in plan.owed(opened.journal, example_id)]
    _announce(how, asked.examples, groups)
    options = EngineOptions(
        max_generating=how.max_concurrent,
        max_scoring=how.max_concurrent,
        score_rollouts=asked.env.score_rollouts,
        has_succeeded=opened.journal.has_generated,
        retry=RetryPolicy(how.max_retries),
    )
    recorder = _Reporter(opened, groups, how) if how.progress_callbacks else opened.journal
    engine = Engine(rollouts=asked.rollouts(), rubric=asked.env.rubric, recorder=recorder, options=options)
    return Run(opened, engine, plan, list(asked.examples))


def _announce(how: Generation, examples: dict[int, list[RolloutInput]], groups: Sequence[Group]) -> None:
    if how.on_start is not None:
        everything = [rollout_input for inputs in examples.values() for rollout_input in inputs]
        owed = [[examples[group.example_id][index] for index in group.members] for group in groups]
        how.on_start(everything, [i for inputs in owed for i in inputs] if how.independent_scoring else owed)
    how.log(f"{sum(len(group.members) for group in groups)} rollouts to do")


def _directory(asked: _Asked, how: Generation) -> RunDirectory | None:
    if how.results_path is not None:
        return RunDirectory(Path(how.results_path))
    if not how.save_results:
        return None
    name = asked.env.env_id or type(asked.env).__name__
    return RunDirectory(runs_folder(name, asked.model, None) / new_run_id())


def _hash(inputs: Sequence[RolloutInput]) -> str:
    """Identifies what the inputs of one ``example_id`` hold: mostly it is the same thing several times."""
    different = {id(rollout_input): rollout_input for rollout_input in inputs}
    hashes = dict.fromkeys(example_hash(rollout_input) for rollout_input in different.values())
    return next(iter(hashes)) if len(hashes) == 1 else fingerprint(hashes)


def _results(run: Run) -> GenerateOutputs:
    directory = run.opened.directory
    metadata = {**run.metadata.to_json(), "path_to_save": directory.path if directory else None}
    return GenerateOutputs(outputs=list(run.opened.rows()), metadata=metadata)


class _Reporter:
    """A recorder that tells callbacks of what the journal keeps."""

    def __init__(self, opened: OpenRun, groups: Sequence[Group], how: Generation) -> None:
        self._journal = opened.journal
        self._callbacks = how.progress_callbacks
        self._metadata = opened.metadata.to_json()
        owed = {(group.example_id, index) for group in groups for index in group.members}
        self._rows: list[Row] = [row for row in opened.rows() if (row["example_id"], row["rollout_index"]) not in owed]
        self._rewards = [row["reward"] for row in self._rows if row["reward"] is not None]
        self.attempted = self._journal.attempted
        self.restore = self._journal.restore

    def scored(self, states: Sequence[State]) -> Sequence[Row]:
        rows: list[Row] = [dict(row) for row in self._journal.scored(states)]
        self._rows.extend(rows)
        self._rewards.extend(row["reward"] for row in rows if row["reward"] is not None)
        mean = sum(self._rewards) / len(self._rewards) if self._rewards else None
        for callback in self._callbacks:
            callback(self._rows, rows, {**self._metadata, "avg_reward": mean})
        return rows


class _States:
    """A recorder that keeps the states of one group."""

    def __init__(self) -> None:
        self.scored_states: list[State] = []

    def attempted(self, state: State) -> None:
        """Nothing is kept of an attempt but its state."""

    def scored(self, states: Sequence[State]) -> Sequence[Row]:
        self.scored_states.extend(states)
        return []

    def restore(self, state: State) -> State:
        return state
