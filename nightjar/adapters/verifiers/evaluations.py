"""Evaluations from their configurations, and what of them is printed, in the words of verifiers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from nightjar.adapters.verifiers.eval_config import EvalConfig, EvalRunConfig
from nightjar.adapters.verifiers.paths import get_eval_results_path
from nightjar.adapters.verifiers.samples import print_prompt_completions_sample
from nightjar.adapters.verifiers.saving import push_results_to_hf_hub
from nightjar.envs import load_environment
from nightjar.envs.outputs import GenerateOutputs
from nightjar.evaluation.settings import apply_settings
from nightjar.packages import environments_in
from nightjar.terminal import harmless

logger = logging.getLogger(__name__)


def filter_inputs(
    inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]], rollouts_per_example: int
) -> list[Any]:
    """Returns the inputs that are left to do: of each example as many as it lacks rows."""
    rows = Counter(output["example_id"] for output in outputs)
    left = {each["example_id"]: rollouts_per_example - rows[each["example_id"]] for each in inputs}
    kept = []
    for each in inputs:
        if left[each["example_id"]] > 0:
            left[each["example_id"]] -= 1
            kept.append(each)
    return kept


def to_col_order(list_of_dicts: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Returns a list for each name that all of them have."""
    shared = [name for name in (list_of_dicts[0] if list_of_dicts else {}) if all(name in row for row in list_of_dicts)]
    return {name: [row[name] for row in list_of_dicts] for name in shared}


def output_env_id(output: Mapping[str, Any]) -> str:
    """Returns the environment that a row of a group of environments is of; empty where it says none."""
    info = output.get("info")
    return str((info.get("env_id") if isinstance(info, Mapping) else None) or output.get("env_id") or "")


def get_env_outputs(results: Mapping[str, Any], env_id: str) -> GenerateOutputs:
    """Returns the rows of one environment of a group."""
    rows = [row for row in results["outputs"] if output_env_id(row) == env_id]
    return GenerateOutputs(outputs=rows, metadata=results["metadata"])


def print_rewards(results: Mapping[str, Any]) -> None:
    """Prints means and spreads of rewards and metrics."""
    rows = results["outputs"]
    rewards = [row["reward"] for row in rows if row.get("reward") is not None]
    _print("Rewards:")
    _print_spread("reward", rewards)
    for name, values in to_col_order([row["metrics"] for row in rows if row.get("metrics")]).items():
        _print_spread(name, [value for value in values if value is not None])
    for label in ("pass_at_k", "pass_all_k"):
        for k, value in (results["metadata"].get(label) or {}).items():
            _print(f"  {'pass@' if label == 'pass_at_k' else 'pass^'}{k}: {value:.3f}")


def print_info(results: Mapping[str, Any]) -> None:
    """Prints how rollouts ended."""
    rows = results["outputs"]
    _print("Info:")
    _print(f"  is_truncated: {sum(bool(row.get('is_truncated')) for row in rows)} of {len(rows)}")
    for title, names in (
        ("stop_conditions", Counter(row.get("stop_condition") or "none" for row in rows)),
        ("errors", Counter(row["error"]["error_chain_repr"] for row in rows if row.get("error"))),
    ):
        if names:
            _print(f"  {title}: " + ", ".join(f"{name} ({count})" for name, count in names.most_common()))


def print_timing(results: Mapping[str, Any]) -> None:
    """Prints how long rollouts took."""
    _print("Timing:")
    for name, values in to_col_order([row["timing"] for row in results["outputs"] if row.get("timing")]).items():
        _print(f"  {name}: min {min(values):.0f}, mean {fmean(values):.0f}, max {max(values):.0f}")


def print_usage(results: Mapping[str, Any]) -> None:
    """Prints the mean tokens of a rollout, where the endpoint named any."""
    usages = [row["token_usage"] for row in results["outputs"] if row.get("token_usage")]
    if usages:
        _print("Usage:")
        for name, values in to_col_order(usages).items():
            _print(f"  {name}: mean {fmean(values):.1f}")


def print_results(results: Mapping[str, Any], num_samples: int = 1) -> None:
    """Prints an evaluation: what it was of, some rollouts, and what it came to; each environment of a group apart."""
    told = results["metadata"]
    _print(f"--- {told['env_id']} | {told['model']} ---")
    _print(f"Examples: {told['num_examples']}, rollouts of each: {told['rollouts_per_example']}")
    print_prompt_completions_sample(results, n=num_samples)
    env_ids = sorted({output_env_id(row) for row in results["outputs"]} - {""})
    for part in [results] if len(env_ids) < 2 else [get_env_outputs(results, env_id) for env_id in env_ids]:  # noqa: PLR2004
        if len(env_ids) > 1:
            _print(f"--- {output_env_id(part['outputs'][0])} ---")
        for show in (print_rewards, print_info, print_timing, print_usage):
            show(part)


def _print(text: str) -> None:
    print(harmless(text))  # noqa: T201 - its name says so


def _print_spread(name: str, values: Sequence[float]) -> None:
    _print(f"  {name}: avg {fmean(values):.3f}, std {pstdev(values):.3f}" if values else f"  {name}: none")


def get_log_level(verbose: bool) -> str:
    """Returns DEBUG, or what ``VF_LOG_LEVEL`` says."""
    return "DEBUG" if verbose else os.environ.get("VF_LOG_LEVEL", "INFO")


@contextmanager
def quiet_datasets() -> Iterator[None]:
    """Keeps the library ``datasets`` from showing how far it is."""
    from datasets.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

    was_enabled = is_progress_bar_enabled()
    disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            enable_progress_bar()


async def run_evaluation(
    config: EvalConfig,
    on_start: Callable[..., Any] | None = None,
    on_log_file: Callable[[Path], Any] | None = None,  # noqa: ARG001 - there is no server that writes one
    on_progress: Any = None,
    on_log: Callable[[str], Any] | None = None,
) -> GenerateOutputs:
    """Runs one evaluation in this process."""
    with environments_in(Path(config.env_dir_path)):
        env = load_environment(config.env_id, **config.env_args)
    apply_settings(env, config.extra_env_kwargs)
    path = config.resume_path or (get_eval_results_path(config) if config.save_results else None)
    results = await env.evaluate(
        client=config.client_config,
        model=config.model,
        sampling_args=config.sampling_args,
        num_examples=config.num_examples,
        rollouts_per_example=config.rollouts_per_example,
        max_concurrent=config.max_concurrent,
        max_retries=config.max_retries,
        results_path=path,
        state_columns=config.state_columns,
        independent_scoring=config.independent_scoring,
        on_start=on_start,
        on_progress=on_progress,
        on_log=on_log,
    )
    if config.save_results and config.save_to_hf_hub:
        await asyncio.to_thread(push_results_to_hf_hub, results, config.hf_hub_dataset_name)
    return results


async def run_evaluations(config: EvalRunConfig) -> None:
    """Runs evaluations at once, and prints each when all have ended.

    Raises:
        Exception: the first that one of them raised.
    """
    ended = await asyncio.gather(*map(run_evaluation, config.evals), return_exceptions=True)
    for one in ended:
        if not isinstance(one, BaseException):
            print_results(one)
    for one in ended:
        if isinstance(one, BaseException):
            raise one


async def run_evaluations_tui(
    config: EvalRunConfig,
    fullscreen: bool = False,  # noqa: ARG001 - 'nightjar eval run' has a display
    compact: bool = False,  # noqa: ARG001 - as above
) -> None:
    """Does what ``run_evaluations`` does."""
    await run_evaluations(config)
