"""``nightjar eval run``: one evaluation, from what was typed to the closing panel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from nightjar.cli.eval import options
from nightjar.errors import ConfigError
from nightjar.logs import log_to_stderr

if TYPE_CHECKING:
    from nightjar.config import Provider, RunConfig


def eval_run(
    env_id: options.EnvId,
    model: options.Model = "openai/gpt-4.1-mini",
    provider: options.Provider = "prime",
    base_url: options.BaseUrl = None,
    api_key_var: options.ApiKeyVar = None,
    api_client_type: options.ApiClientType = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    sampling_args: options.SamplingArgs = None,
    env_args: options.EnvArgs = None,
    extra_env_kwargs: options.ExtraEnvKwargs = None,
    env_dir_path: options.EnvDirPath = "environments",
    num_examples: options.NumExamples = None,
    rollouts_per_example: options.RolloutsPerExample = None,
    shuffle_seed: options.ShuffleSeed = None,
    max_concurrent: options.MaxConcurrent = 32,
    max_concurrent_generation: options.MaxConcurrentGeneration = None,
    max_concurrent_scoring: options.MaxConcurrentScoring = None,
    max_retries: options.MaxRetries = 0,
    request_timeout: options.RequestTimeout = 3600.0,
    scoring_timeout: options.ScoringTimeout = None,
    no_interleave_scoring: options.NoInterleaveScoring = False,
    independent_scoring: options.IndependentScoring = False,
    state_columns: options.StateColumns = "",
    tags: options.Tags = None,
    save_results: options.SaveResults = False,  # noqa: ARG001 - results are always saved
    resume: options.Resume = None,
    output_dir: options.OutputDir = None,
    warehouse: options.WarehouseFolder = None,
    direct: options.Direct = False,
    prefect: options.Prefect = False,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Evaluate a model in an environment.

    The run appears in the Prefect UI when a Prefect server is configured or answers on this machine (see
    'nightjar up'), and runs in this process otherwise. Every finished model call is on disk at once: an
    interrupted run goes on with --resume and asks nothing twice.
    """
    from nightjar.cli.eval import running

    if direct and prefect:
        raise typer.BadParameter("--direct and --prefect exclude each other")
    known = _provider(provider)
    limits = {"max_tokens": max_tokens, "temperature": temperature}
    config = _config(
        {
            "env_id": env_id,
            "model": model,
            "base_url": base_url or known.base_url,
            "api_key_var": api_key_var or known.key_var,
            "api_client_type": api_client_type or known.client_type,
            "env_args": env_args or {},
            "extra_env_kwargs": extra_env_kwargs or {},
            "env_dir_path": env_dir_path,
            "sampling_args": {
                **{name: value for name, value in limits.items() if value is not None},
                **(sampling_args or {}),
            },
            "num_examples": num_examples,
            "rollouts_per_example": rollouts_per_example,
            "shuffle_seed": shuffle_seed,
            "max_concurrent": max_concurrent,
            "max_concurrent_generation": max_concurrent_generation,
            "max_concurrent_scoring": max_concurrent_scoring,
            "max_retries": max_retries,
            "request_timeout": request_timeout,
            "scoring_timeout": scoring_timeout,
            "interleave_scoring": not no_interleave_scoring,
            "independent_scoring": independent_scoring,
            "state_columns": [name.strip() for name in state_columns.split(",") if name.strip()],
            "tags": tags or [],
        }
    )
    mode: running.Mode = "prefect" if prefect else "direct" if direct else "auto"
    log_to_stderr(verbose)
    outcome = running.run(config, mode, output_dir, resume, warehouse)
    running.finish(outcome, as_json)


def _provider(name: str) -> Provider:
    from nightjar.config import find_provider

    try:
        return find_provider(name)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="'--provider' / '-p'") from error


def _config(values: dict[str, Any]) -> RunConfig:
    """Returns the configuration; what no environment, endpoint or file has to do with is wrong usage."""
    from nightjar.config import parse_run_config

    try:
        config = parse_run_config(values)
        config.client_config()
    except ConfigError as error:
        if type(error) is not ConfigError:  # one of its kinds: the environment is broken
            raise
        field, _, message = str(error).partition(": ")
        raise typer.BadParameter(message, param_hint=_flag(field)) from error
    return config


def _flag(field: str) -> str:
    return "'ENV'" if field == "env_id" else f"'--{field.replace('_', '-')}'"
