"""Generates rollouts from Python (``generate``, single groups) with the engine and run directories of any run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, cast

from nightjar.clients import ClientConfig, resolve_client, resolve_client_configs
from nightjar.clients.client import AnyClient
from nightjar.core.rollout.state import RolloutInput, SamplingArgs, State
from nightjar.engine import Engine, EngineOptions, Group, Plan, RetryPolicy, Run, run_groups
from nightjar.engine.runs import OpenRun, RunDirectory, RunMetadata, id_for, new_run_id, runs_folder
from nightjar.engine.runs.identity import fingerprint
from nightjar.environments.data import example_hash
from nightjar.environments.datasets import hub_dataset_name, results_dataset, rows_of
from nightjar.environments.packages.lookup import version_info
from nightjar.environments.rollouts import EnvironmentRollouts, RunnableEnvironment, plan_groups, tear_down_at_exit

Row: TypeAlias = dict[str, Any]
StartCallback: TypeAlias = Callable[[list[RolloutInput], Any], None]
ProgressCallback: TypeAlias = Callable[[list[Row], list[Row], dict[str, Any]], None]
LogCallback: TypeAlias = Callable[[str], None]
_IDENTITY = ("env_id", "env_args", "extra_env_kwargs", "model", "base_url", "rollouts_per_example", "sampling_args")


GenerateMetadata: TypeAlias = dict[str, Any]
"""Configuration and aggregates of a run, as in ``metadata.json``; see docs/reference/run-directory.md."""


class GenerateOutputs(TypedDict):
    """The result of ``generate``; ``outputs`` are the rows of ``results.jsonl``, by (example_id, rollout_index)."""

    outputs: list[Row]
    metadata: GenerateMetadata


@dataclass(frozen=True)
class Generation:
    """How rollouts are generated; a ``max_concurrent`` of -1 means no limit.

    Attributes:
        results_path: the run directory; an existing run is resumed. If None, results are kept in memory.
        save_results: if ``results_path`` is None, create a run directory in the same place as ``nightjar eval run``.
        on_start: called once with two arguments: all inputs, and the remaining inputs in groups.
        on_progress: called after each group with all rows so far, new rows and metadata; may be a list of functions.
    """

    max_concurrent: int = -1
    results_path: str | Path | None = None
    state_columns: Sequence[str] | None = ()
    save_results: bool = False
    push_to_hf_hub: bool = False
    hf_hub_dataset_name: str | None = None
    independent_scoring: bool = False
    max_retries: int = 0
    on_start: StartCallback | None = None
    on_progress: ProgressCallback | Sequence[ProgressCallback] | None = None
    on_log: LogCallback | None = None

    def log(self, line: str) -> None:
        if self.on_log is not None:
            self.on_log(line)

    @property
    def progress_callbacks(self) -> Sequence[ProgressCallback]:
        if callable(self.on_progress):
            return [self.on_progress]
        return self.on_progress or []


async def generate(
    env: RunnableEnvironment,
    inputs: Iterable[RolloutInput],
    client: AnyClient | ClientConfig,
    model: str,
    sampling_args: SamplingArgs,
    how: Generation,
) -> GenerateOutputs:
    examples: dict[int, list[RolloutInput]] = defaultdict(list)
    for rollout_input in rows_of(inputs):
        examples[rollout_input["example_id"]].append(rollout_input)
    tear_down_at_exit(env)
    async with _connected(client, how.independent_scoring) as connected:
        request = _Request(env, connected, model, sampling_args, examples)
        async with _open(request, how) as run:
            async with run.stages() as stages:
                for shard in run.shards:
                    stages.create_task(run.generate(shard))
                    stages.create_task(run.score(shard))
            run.aggregate()
            if run.error is not None:
                raise run.error
            directory = run.opened.directory
            metadata = {**run.metadata.to_json(), "path_to_save": directory.path if directory else None}
            results = GenerateOutputs(outputs=list(run.opened.rows()), metadata=metadata)
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
    if not inputs:
        return []
    tear_down_at_exit(env)
    example_id, recorder = inputs[0]["example_id"], _States()
    options = EngineOptions(
        max_generating=-1, max_scoring=-1, score_rollouts=env.score_rollouts, retry=RetryPolicy(max_retries)
    )
    async with _connected(client) as connected:
        request = _Request(env, connected, model, sampling_args or {}, {example_id: list(inputs)})
        engine = Engine(rollouts=request.rollouts(), rubric=env.rubric, recorder=recorder, options=options)
        await run_groups(engine, [Group(example_id, tuple(range(len(inputs))))])
    return recorder.scored_states


async def generate_one(env: RunnableEnvironment, *args: Any, sem: Any = None, **kwargs: Any) -> State:
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
    connected = resolve_client(client, is_per_rollout=is_per_rollout)
    try:
        yield connected
    finally:
        if isinstance(client, ClientConfig):
            await connected.close()


@dataclass(frozen=True)
class _Request:
    env: RunnableEnvironment
    client: AnyClient
    model: str
    sampling_args: SamplingArgs
    examples: dict[int, list[RolloutInput]]

    def rollouts(self) -> EnvironmentRollouts:
        return EnvironmentRollouts(
            self.env, self.client, self.model, self.sampling_args,
            lambda example_id, index: cast("dict[str, Any]", deepcopy(self.examples[example_id][index])),
        )  # fmt: skip

    def plan(self, is_independent: bool) -> Plan:
        counts = {example_id: len(inputs) for example_id, inputs in self.examples.items()}
        return plan_groups(self.env, max(counts.values(), default=0), is_independent, counts)

    def open(self, directory: RunDirectory | None, plan: Plan, state_columns: Sequence[str]) -> OpenRun:
        hashes = {example_id: _hash(inputs) for example_id, inputs in self.examples.items()}
        config: ClientConfig | None = getattr(self.client, "config", None)
        urls = [replica.api_base_url for replica in resolve_client_configs(config)] if config else []
        versions = version_info(self.env.env_id)
        metadata = RunMetadata(
            run_id=id_for(directory) if directory else new_run_id(),
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
            reward_weights=self.env.rubric.reward_weights,
            state_columns=list(state_columns),
            version_info=versions,
        )
        identity = {
            **{name: getattr(metadata, name) for name in _IDENTITY},
            "api_client_type": config.client_type if config else type(self.client).__name__,
            "shuffle_seed": None,
        }
        settings = {**identity, "num_examples": metadata.num_examples, "pass_threshold": metadata.pass_threshold}
        return OpenRun(directory, metadata, config=settings, identity=identity, hashes=hashes)


def _open(request: _Request, how: Generation) -> Run:
    plan = request.plan(how.independent_scoring)
    columns = [*dict.fromkeys([*request.env.state_columns, *(how.state_columns or ())])]
    opened = request.open(_directory(request, how), plan, columns)
    groups = [group for example_id in request.examples for group in plan.remaining_groups(opened.journal, example_id)]
    _report_start(how, request.examples, groups)
    options = EngineOptions(
        max_generating=how.max_concurrent,
        max_scoring=how.max_concurrent,
        score_rollouts=request.env.score_rollouts,
        has_succeeded=opened.journal.has_generated,
        retry=RetryPolicy(how.max_retries),
    )
    recorder = _Reporter(opened, groups, how) if how.progress_callbacks else opened.journal
    engine = Engine(rollouts=request.rollouts(), rubric=request.env.rubric, recorder=recorder, options=options)
    return Run(opened, engine, plan, list(request.examples))


def _report_start(how: Generation, examples: dict[int, list[RolloutInput]], groups: Sequence[Group]) -> None:
    if how.on_start is not None:
        everything = [rollout_input for inputs in examples.values() for rollout_input in inputs]
        remaining = [[examples[group.example_id][index] for index in group.members] for group in groups]
        how.on_start(everything, [i for inputs in remaining for i in inputs] if how.independent_scoring else remaining)
    how.log(f"{sum(len(group.members) for group in groups)} rollouts remaining")


def _directory(request: _Request, how: Generation) -> RunDirectory | None:
    if how.results_path is not None:
        return RunDirectory(Path(how.results_path))
    if not how.save_results:
        return None
    name = request.env.env_id or type(request.env).__name__
    return RunDirectory(runs_folder(name, request.model, None) / new_run_id())


def _hash(inputs: Sequence[RolloutInput]) -> str:
    different = {id(rollout_input): rollout_input for rollout_input in inputs}
    hashes = dict.fromkeys(example_hash(rollout_input) for rollout_input in different.values())
    return next(iter(hashes)) if len(hashes) == 1 else fingerprint(hashes)


class _Reporter:
    def __init__(self, opened: OpenRun, groups: Sequence[Group], how: Generation) -> None:
        self._journal = opened.journal
        self._callbacks = how.progress_callbacks
        self._metadata = opened.metadata.to_json()
        to_do = {(group.example_id, index) for group in groups for index in group.members}
        self._rows: list[Row] = [row for row in opened.rows() if (row["example_id"], row["rollout_index"]) not in to_do]
        self._rewards = [row["reward"] for row in self._rows if row["reward"] is not None]
        self.check_writable = self._journal.check_writable
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
    def __init__(self) -> None:
        self.scored_states: list[State] = []

    def check_writable(self) -> None:
        """Does nothing: nothing is written."""

    def attempted(self, state: State) -> None:
        """Does nothing: only scored states are kept."""

    def scored(self, states: Sequence[State]) -> Sequence[Row]:
        self.scored_states.extend(states)
        return []

    def restore(self, state: State) -> State:
        return state
