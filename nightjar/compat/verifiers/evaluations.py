"""Runs evaluations from the configurations of verifiers."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nightjar.compat.verifiers.config import EvalConfig, EvalRunConfig
from nightjar.compat.verifiers.printing import print_results
from nightjar.compat.verifiers.results import get_eval_results_path, push_results_to_hf_hub
from nightjar.environments import load_environment
from nightjar.environments.generation import GenerateOutputs
from nightjar.environments.packages.lookup import environments_in
from nightjar.evaluation.preparation import apply_settings


def filter_inputs(
    inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]], rollouts_per_example: int
) -> list[Any]:
    """Returns the remaining inputs: one for each missing row of an example."""
    rows = Counter(output["example_id"] for output in outputs)
    missing = {each["example_id"]: rollouts_per_example - rows[each["example_id"]] for each in inputs}
    kept = []
    for each in inputs:
        if missing[each["example_id"]] > 0:
            missing[each["example_id"]] -= 1
            kept.append(each)
    return kept


def get_log_level(verbose: bool) -> str:
    """Returns DEBUG if verbose, else the value of ``VF_LOG_LEVEL`` or INFO."""
    return "DEBUG" if verbose else os.environ.get("VF_LOG_LEVEL", "INFO")


@contextmanager
def quiet_datasets() -> Iterator[None]:
    try:
        from datasets.utils import logging as bars
    except ModuleNotFoundError:
        yield
        return
    was_enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            bars.enable_progress_bar()


async def run_evaluation(
    config: EvalConfig,
    on_start: Callable[..., Any] | None = None,
    on_log_file: Callable[[Path], Any] | None = None,  # noqa: ARG001 - there is no server that writes a log file
    on_progress: Any = None,
    on_log: Callable[[str], Any] | None = None,
) -> GenerateOutputs:
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
    """Runs evaluations concurrently and prints their results at the end; raises the first error of an evaluation."""
    outcomes = await asyncio.gather(*map(run_evaluation, config.evals), return_exceptions=True)
    for outcome in outcomes:
        if not isinstance(outcome, BaseException):
            print_results(outcome)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def run_evaluations_tui(
    config: EvalRunConfig,
    fullscreen: bool = False,  # noqa: ARG001 - 'nightjar eval run' has a display
    compact: bool = False,  # noqa: ARG001
) -> None:
    await run_evaluations(config)
