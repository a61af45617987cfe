"""``run_evaluation`` runs a solver on a benchmark with Nightjar's engine.

>>> bundle = await run_evaluation(env, ChatSolver(client), n_repeats=4)         # doctest: +SKIP
>>> write_all(bundle, "./eval_results")                                         # doctest: +SKIP
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from nightjar.clients.client import UnaskedClient
from nightjar.compat.nemo.engine.artifacts import Bundle
from nightjar.compat.nemo.engine.model_client import ModelClient, current_rollout
from nightjar.compat.nemo.engine.results import RESPONSE, TRAJECTORY, bundle_of_rows
from nightjar.compat.nemo.engine.sharding import get_shard_range
from nightjar.compat.nemo.observability import ModelResponse, ProgressTracker
from nightjar.compat.nemo.solvers import ErrorKind, Solver, SolveResult
from nightjar.core.calling.decorators import teardown
from nightjar.core.messages import Response, ResponseMessage, Usage
from nightjar.core.rollout.state import RolloutInput, State, add_usage
from nightjar.core.secrecy import hide_keys
from nightjar.engine import rare_garbage_collection
from nightjar.engine.runs import new_run_id
from nightjar.environments.rollouts import tear_down
from nightjar.environments.seeded.bridge import SETTLED, SeededEnv, row_of, seeded, size_of
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult
from nightjar.environments.seeded.judge import Judge
from nightjar.errors import (
    ConfigError,
    DatasetError,
    Error,
    GracefulError,
    InfraError,
    OverlongPromptError,
    TurnLimitError,
)

_COUNTS_AS_WRONG = frozenset({ErrorKind.GRACEFUL, ErrorKind.SOLVE_TIMEOUT})
_TRANSIENT = frozenset({ErrorKind.INFRA, ErrorKind.TOOL_INFRA})
_FINISH_REASONS = frozenset({"stop", "length", "tool_calls"})
logger = logging.getLogger(__name__)
DEFAULT_MAX_CONCURRENT = 32
_SEEDED_AT_ONCE = 256
_CORRECT = 0.5


class SolvedEnv(SeededEnv):
    """A benchmark with a solver that answers the problems in place of the run's model."""

    state_columns: Sequence[str] = (*SeededEnv.state_columns, RESPONSE, TRAJECTORY)

    def __init__(
        self,
        benchmark: EvalEnvironment,
        solver: Solver,
        seeds: Mapping[int, SeedResult],
        judge: Judge | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(benchmark, judge, [row_of(seed) for seed in seeds.values()], **kwargs)
        self._solver = solver
        self._seeds = seeds
        self.env_id = benchmark.name

    @teardown
    async def close_benchmark(self) -> None:
        """Leaves the benchmark open, because it belongs to the caller."""

    async def get_model_response(self, state: State, *_: Any, **__: Any) -> Response:  # the solver has its own prompt
        result = await self._solved(state)
        if result.error_kind in _COUNTS_AS_WRONG:
            details = {"error": result.error, "error_category": result.error_kind.value, **result.scoring_details}
            state[SETTLED] = {"reward": 0.0, "scoring_details": details}
        elif result.error_kind is not ErrorKind.NONE or result.error:
            kind = InfraError if result.error_kind in _TRANSIENT else Error
            raise kind(result.error or result.error_kind.value)
        elif result.reward is not None:
            state[SETTLED] = {"reward": float(result.reward), "scoring_details": result.scoring_details}
        state[TRAJECTORY] = result.trajectory or None
        response = _response(result)
        state[RESPONSE] = _recorded(result.model_response)
        add_usage(state, response)
        return response

    async def _solved(self, state: State) -> SolveResult:
        token = current_rollout.set(state)
        try:
            return await self._solver.solve(self._seeds[state["example_id"]])
        except TurnLimitError as error:
            return _graceful(error, error_category="turn_budget_exhausted")
        except GracefulError as error:
            return _graceful(error)
        except OverlongPromptError as error:
            return _graceful(error, error_category="context_window_exceeded")
        finally:
            current_rollout.reset(token)


def _graceful(error: Error, **details: str) -> SolveResult:
    return SolveResult("", error=hide_keys(str(error)), error_kind=ErrorKind.GRACEFUL, scoring_details={**details})


def _response(result: SolveResult) -> Response:
    answer = result.model_response or ModelResponse("")
    reason: Any = answer.finish_reason if answer.finish_reason in _FINISH_REASONS else None
    counts = (answer.prompt_tokens, answer.completion_tokens)
    usage = None
    if None not in counts:
        given, written = (count or 0 for count in counts)
        usage = Usage(
            prompt_tokens=given,
            completion_tokens=written,
            total_tokens=answer.total_tokens or given + written,
            reasoning_tokens=answer.reasoning_tokens or 0,
        )
    message = ResponseMessage(content=result.response, finish_reason=reason, is_truncated=reason == "length")
    return Response(id="", created=0, model=answer.model, usage=usage, message=message)


def _recorded(answer: ModelResponse | None) -> dict[str, Any] | None:
    names: Sequence[str] = ("finish_reason", "reasoning_tokens", "latency_ms")
    return None if answer is None else {name: getattr(answer, name) for name in names}


async def run_evaluation(
    env: EvalEnvironment,
    solver: Solver,
    n_repeats: int = 1,
    max_problems: int | None = None,
    config: dict[str, Any] | None = None,
    progress: ProgressTracker | None = None,
    problem_range: tuple[int, int] | None = None,
    max_concurrent: int = DEFAULT_MAX_CONCURRENT,
    judge_client: Any = None,
    sandbox_manager: Any = None,
    model_url: str | None = None,
    step_log_dir: str | Path | None = None,
    resume: bool = False,
    skip_failed: bool = False,
    max_system_retries: int = 3,
    shard_info: tuple[int, int] | None = None,
    instruction_template: Path | None = None,
    shuffle_seed: int | None = None,
    model_traffic_store: Any = None,
) -> Bundle:
    """Runs a solver on the problems of a benchmark and returns the bundle, sorted by problem.

    Closes the benchmark at the end; solver and client stay usable. Raises ``ResumeMismatchError`` if the settings
    differ from those of the run to resume, and ``RunError`` if the endpoint rejects every request.

    Args:
        config: further settings to record. ``scorers`` names scorers whose scores are metrics beside the reward.
        problem_range: the first problem and the last problem plus 1; overrides shuffling and shards.
        judge_client: a client with a ``chat`` like ``ModelClient``; scores answers that need a judge.
        model_url: recorded if the solver does not name its endpoint.
        step_log_dir: the folder for run directories, which keep finished rollouts; ``resume`` continues the newest.
        skip_failed: accepted and ignored; a failed step never stops other steps.
        max_system_retries: attempts at a step after infrastructure errors.
        shard_info: the shard, counted from 0, and the number of shards.
        shuffle_seed: seed of a random order of problems; None keeps their own order.
        sandbox_manager, instruction_template, model_traffic_store: not supported; a value raises ``ConfigError``.
    """
    refused = {
        "sandbox_manager": sandbox_manager,
        "instruction_template": instruction_template,
        "model_traffic_store": model_traffic_store,
    }
    for name, value in refused.items():
        if value is not None:
            raise ConfigError(f"run_evaluation does not support {name}. See docs/coming-from/nemo.md")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(env.close)
        if (batch := await env.run_batch(solver, config)) is not None:
            return batch
        stack.enter_context(rare_garbage_collection())
        await env.prepare()
        numbers = chosen_problems(await size_of(env), max_problems, problem_range, shard_info, shuffle_seed)
        if not numbers or n_repeats < 1:
            raise DatasetError(f"Nothing to evaluate: {len(numbers)} problems of {env.name!r}, {n_repeats} repeats")
        seeds: dict[int, SeedResult] = {}
        for start in range(0, len(numbers), _SEEDED_AT_ONCE):
            seeds |= await seeded(env, numbers[start : start + _SEEDED_AT_ONCE])
        client, model = _client_and_model(solver)
        if client and client.max_concurrent < max_concurrent:
            logger.warning(
                "The ModelClient allows %d concurrent requests (max_concurrent), but %d problems run concurrently",
                client.max_concurrent, max_concurrent,
            )  # fmt: skip
        settings = {"solver": type(solver).__name__, "system_prompt": getattr(solver, "system_prompt", None)}
        compared = {**settings, **getattr(solver, "settings", {}), "reasoning": client and client.reasoning_pattern}
        solved = SolvedEnv(env, solver, seeds, judge_client, env_args={k: v for k, v in compared.items() if v})
        if scorers := (config or {}).get("scorers"):
            solved.set_scorers(scorers)
        rows = {number: {**row_of(seed), "example_id": number} for number, seed in seeds.items()}
        inputs = [cast("RolloutInput", rows[number]) for number in numbers for _ in range(n_repeats)]
        if progress is not None:
            progress.on_start(env.name, len(numbers), n_repeats)
        outputs = await solved.generate(
            inputs,
            UnaskedClient() if client is None else client.client,
            model,
            client.sampling_args if client else {},
            max_concurrent,
            results_path=_folder(step_log_dir, resume=resume),
            max_retries=max(0, max_system_retries - 1),
            on_progress=_reporter(progress, len(numbers), n_repeats) if progress else None,
        )
        await tear_down(solved)
        recorded = {
            "benchmark": env.name,
            "model": model,
            "base_url": client.base_url if client else model_url,
            **(client.sampling_args if client else {}),
            **settings,
            "repeats": n_repeats,
            "max_problems": max_problems,
            "shuffle_seed": shuffle_seed,
            "shard_range": [min(numbers), max(numbers) + 1] if shard_info else None,
            "n_shards": shard_info[1] if shard_info else None,
        }
        recorded = {name: value for name, value in recorded.items() if value is not None} | (config or {})
        bundle = bundle_of_rows(outputs["outputs"], outputs["metadata"], recorded)
        _report_end(bundle, progress, skip_failed=skip_failed)
        return bundle


def chosen_problems(
    size: int,
    max_problems: int | None = None,
    problem_range: tuple[int, int] | None = None,
    shard_info: tuple[int, int] | None = None,
    shuffle_seed: int | None = None,
) -> list[int]:
    if problem_range is not None:
        return [*range(max(0, problem_range[0]), min(size, problem_range[1]))]
    numbers = [*range(size)]
    if shuffle_seed is not None:
        random.Random(shuffle_seed).shuffle(numbers)  # noqa: S311 - no secret
    numbers = numbers[:max_problems]
    return numbers if shard_info is None else numbers[slice(*get_shard_range(len(numbers), *shard_info))]


def _client_and_model(solver: Solver) -> tuple[ModelClient | None, str]:
    client = getattr(solver, "client", None)
    if isinstance(client, ModelClient):
        return client, client.model
    return None, getattr(client, "model", None) or type(solver).__name__


def _folder(step_log_dir: str | Path | None, *, resume: bool) -> Path | None:
    if step_log_dir is None:
        return None
    folder = Path(step_log_dir)
    earlier = [path.parent for path in folder.glob("*/metadata.json")] if resume else []
    return max(earlier, key=lambda path: path.stat().st_mtime, default=folder / new_run_id())


def _reporter(progress: ProgressTracker, problems: int, repeats: int) -> Any:
    def tell(_: Any, new: Sequence[dict[str, Any]], __: Any) -> None:
        for row in new:
            usage = row["token_usage"] or {}
            tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0) if usage else None
            place = (row["example_id"], row["rollout_index"], problems, repeats)
            progress.on_step(*place, row["reward"] or 0.0, tokens, row["timing"]["generation_ms"])

    return tell


def _report_end(bundle: Bundle, progress: ProgressTracker | None, *, skip_failed: bool) -> None:
    results, runtime = bundle["_results"], bundle["_artifacts"].runtime
    rewards = [row["reward"] for row in results if row["reward"] is not None]
    if len(rewards) < len(results) and not skip_failed:
        logger.warning("%d of %d steps failed and have no reward", len(results) - len(rewards), len(results))
    if progress is not None:
        correct = sum(reward >= _CORRECT for reward in rewards)
        mean = bundle["benchmark"]["scores"]["mean_reward"]["value"]
        progress.on_done(correct, len(results), runtime.elapsed_seconds, runtime.total_tokens, mean)
