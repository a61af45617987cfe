"""``Environment.generate``: rollouts from Python, through the same engine as a run."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from nightjar.clients import Client, ClientConfig, resolve_client
from nightjar.data import example_hash
from nightjar.engine import Engine, EngineOptions, Group, GroupQueue, Recorder, RetryPolicy, task_group
from nightjar.envs.rollouts import EnvironmentRollouts
from nightjar.errors import ConfigError, RunDirectoryError
from nightjar.records import result_row
from nightjar.runs import Journal, RunDirectory, summarize_rows
from nightjar.runs.jsonl import scan_lines
from nightjar.state import RolloutInput, SamplingArgs, State

if TYPE_CHECKING:
    from nightjar.envs.environment import Environment


class GenerateOutputs(TypedDict):
    """What ``generate`` returns.

    Attributes:
        outputs: a row a rollout, as in ``results.jsonl``, ordered by (example_id, rollout_index).
        metadata: environment, model, arguments and aggregates, as in ``metadata.json``.
    """

    outputs: list[dict[str, Any]]
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Generation:
    """How rollouts are generated.

    Attributes:
        max_concurrent: rollouts at once; -1 for no limit.
        results_path: an empty or missing folder that becomes the run directory; None keeps results in memory only.
        state_columns: keys of the state that rows keep besides their own.
        independent_scoring: score each rollout by itself.
        max_retries: further attempts after errors that can heal.
    """

    max_concurrent: int = -1
    results_path: Path | None = None
    state_columns: Sequence[str] = ()
    independent_scoring: bool = False
    max_retries: int = 0


class _Memory:
    """A recorder that keeps rows in memory."""

    def __init__(self, state_columns: Sequence[str]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._state_columns = state_columns
        self._attempts: dict[tuple[int, int], int] = defaultdict(int)

    def attempted(self, state: State) -> None:
        self._attempts[_key(state["input"])] += 1

    def scored(self, states: Sequence[State]) -> None:
        for state in states:
            attempts, content = self._attempts[_key(state["input"])], example_hash(state["input"])
            columns = self._state_columns
            self.rows.append(result_row(state, attempts=attempts, example_hash=content, state_columns=columns))

    def restore(self, state: State) -> State:
        raise NotImplementedError("nothing was generated before")


async def generate(
    env: Environment,
    inputs: Iterable[RolloutInput],
    client: Client[Any, Any, Any, Any] | ClientConfig,
    model: str,
    sampling_args: SamplingArgs,
    how: Generation,
) -> GenerateOutputs:
    """Generates and scores rollouts; inputs of one ``example_id`` form a group.

    Raises:
        ConfigError: the rubric has group functions and scoring is independent.
        RunError: the endpoint refuses everything, or ``results_path`` cannot be used.
    """
    if how.independent_scoring and env.rubric.has_group_rewards:
        raise ConfigError("A rubric with group reward functions cannot score rollouts independently")
    examples: dict[int, RolloutInput] = {}
    counts: Counter[int] = Counter()
    for rollout_input in inputs:
        examples.setdefault(rollout_input["example_id"], rollout_input)
        counts[rollout_input["example_id"]] += 1
    asked = resolve_client(client)
    try:
        with _recording(examples, how) as (recorder, rows):
            rollouts = EnvironmentRollouts(env, asked, model, sampling_args, lambda i: deepcopy(examples[i]))
            options = EngineOptions(
                max_generating=how.max_concurrent,
                max_scoring=how.max_concurrent,
                score_rollouts=env.score_rollouts,
                retry=RetryPolicy(how.max_retries),
            )
            engine = Engine(rollouts=rollouts, rubric=env.rubric, recorder=recorder, options=options)
            await _run(engine, _groups(counts, how.independent_scoring))
    finally:
        if asked is not client:
            await asked.close()
    rows.sort(key=_key)
    return GenerateOutputs(outputs=rows, metadata=_metadata(env, asked, model, sampling_args, counts, rows))


async def _run(engine: Engine, groups: Iterable[Group]) -> None:
    ready: GroupQueue = asyncio.Queue()
    async with task_group() as tasks:
        tasks.create_task(engine.generate(groups, ready))
        tasks.create_task(engine.score(ready))


def _groups(counts: Mapping[int, int], is_independent: bool) -> Iterator[Group]:
    for example_id, count in counts.items():
        if is_independent:
            yield from (Group(example_id, (index,)) for index in range(count))
        else:
            yield Group(example_id, tuple(range(count)))


@contextmanager
def _recording(
    examples: Mapping[int, RolloutInput], how: Generation
) -> Iterator[tuple[Recorder, list[dict[str, Any]]]]:
    """Yields a recorder, and the rows that it has recorded when the block has ended."""
    if how.results_path is None:
        memory = _Memory(how.state_columns)
        yield memory, memory.rows
        return
    rows: list[dict[str, Any]] = []
    with RunDirectory(how.results_path) as directory:
        if directory.results_path.exists():
            raise RunDirectoryError(f"There are results in {str(how.results_path)!r} already: choose another folder")
        journal = Journal(directory, lambda example_id: example_hash(examples[example_id]), how.state_columns)
        try:
            yield journal, rows
        finally:
            journal.finish()
        rows.extend(line.row for line in scan_lines(directory.results_path))


def _key(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["example_id"], row["rollout_index"]


def _metadata(
    env: Environment,
    client: Client[Any, Any, Any, Any],
    model: str,
    sampling_args: SamplingArgs,
    counts: Mapping[int, int],
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    per_example = max(counts.values(), default=0)
    summary = summarize_rows(
        rows, rollouts=sum(counts.values()), rollouts_per_example=per_example, pass_threshold=env.pass_threshold
    )
    return {
        "env_id": env.env_id,
        "env_args": env.env_args,
        "model": model,
        "base_url": client.config.api_base_url if client.config else None,
        "num_examples": len(counts),
        "rollouts_per_example": per_example,
        "sampling_args": sampling_args,
        "coverage": summary.coverage,
        "avg_error": summary.avg_error,
        **asdict(summary),
    }
