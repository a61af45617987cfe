"""``verifiers.scripts.eval.main()``, for programs that call it; the command is ``nightjar eval run``."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nightjar.clients import ClientConfig, EndpointClientConfig
from nightjar.clients.providers import PROVIDERS, find_provider, is_same_host, key_variable
from nightjar.compat.verifiers.config import EvalConfig, EvalRunConfig, load_endpoints, load_toml_config
from nightjar.compat.verifiers.evaluations import get_log_level, run_evaluations, run_evaluations_tui
from nightjar.compat.verifiers.results import find_latest_incomplete_eval_results_path, is_valid_eval_results_path
from nightjar.core.logs import setup_logging
from nightjar.environments.packages.lookup import eval_defaults
from nightjar.evaluation.config import Endpoint, Endpoints

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "openai/gpt-4.1-mini"
DEFAULT_ENDPOINTS_PATH = "./configs/endpoints.toml"
DEFAULT_ENV_DIR_PATH = "./environments"
DEFAULT_NUM_EXAMPLES = 5
DEFAULT_ROLLOUTS_PER_EXAMPLE = 3
DEFAULT_MAX_CONCURRENT = 32
DEFAULT_PROVIDER = "prime"

_VALUES: dict[str, tuple[str | None, Callable[[str], Any]]] = {
    "env_args": ("-a", json.loads), "extra_env_kwargs": ("-x", json.loads), "sampling_args": ("-S", json.loads),
    "env_dir_path": (None, str), "endpoints_path": ("-e", str), "provider": ("-p", str), "model": ("-m", str),
    "api_client_type": (None, str), "api_key_var": ("-k", str), "api_base_url": ("-b", str),
    "num_examples": ("-n", int), "rollouts_per_example": ("-r", int), "max_concurrent": ("-c", int),
    "max_concurrent_generation": (None, int), "max_concurrent_scoring": (None, int), "max_tokens": ("-t", int),
    "temperature": ("-T", float), "max_retries": (None, int), "output_dir": ("-o", str),
    "hf_hub_dataset_name": ("-D", str), "heartbeat_url": (None, str), "num_workers": ("-w", str),
    "timeout": (None, float),
}  # fmt: skip
_SAME = (
    "env_args", "independent_scoring", "max_retries", "output_dir", "save_results", "save_to_hf_hub",
    "hf_hub_dataset_name", "num_workers", "disable_env_server", "verbose",
)  # fmt: skip
_SWITCHES = {
    "independent_scoring": "-i", "no_interleave_scoring": "-N", "save_results": "-s", "save_to_hf_hub": "-H",
    "verbose": "-v", "tui": "-u", "fullscreen": "-f", "debug": "-d", "abbreviated_summary": "-A",
    "disable_env_server": None,
}  # fmt: skip


def main() -> None:
    flags = vars(_parser().parse_args())
    setup_logging(get_log_level(bool(flags.get("verbose"))))
    name = flags["env_id_or_config"]
    tables = load_toml_config(Path(name)) if name.endswith(".toml") else [{**flags, "env_id": name}]
    config = EvalRunConfig(evals=[*map(build_eval_config, tables)], heartbeat_url=flags.get("heartbeat_url"))
    asyncio.run(run_evaluations(config) if flags.get("debug") else run_evaluations_tui(config))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vf-eval", description="Evaluate a model in an environment.")
    parser.add_argument("env_id_or_config", help="Environment, or a TOML file of evaluations.")
    for field, (short, kind) in _VALUES.items():
        parser.add_argument(*filter(None, (short, _flag(field))), type=kind, default=None)
    for field, short in _SWITCHES.items():
        parser.add_argument(*filter(None, (short, _flag(field))), action="store_true")
    for field in ("header", "header_from_state"):
        parser.add_argument(_flag(field), action="append", default=None)
    parser.add_argument("-C", "--state-columns", type=lambda text: text.split(","), default=[])
    parser.add_argument("-R", "--resume", nargs="?", const=True, default=None)
    return parser


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def build_eval_config(raw: Mapping[str, Any]) -> EvalConfig:
    """Returns the configuration of an evaluation. Missing fields come from the environment's ``pyproject.toml``."""
    given = {name: value for name, value in raw.items() if value is not None}
    env_id, env_dir_path = given["env_id"], given.get("env_dir_path", DEFAULT_ENV_DIR_PATH)
    defaults = eval_defaults(env_id, Path(env_dir_path))
    endpoint_id, model, client = _endpoint_of(given)
    limit = {"timeout_seconds": given["timeout"]} if "timeout" in given else {}
    config = EvalConfig(
        **{name: given[name] for name in _SAME if name in given},
        env_id=env_id,
        env_dir_path=env_dir_path,
        endpoint_id=endpoint_id,
        model=model,
        client_config=client,
        sampling_args=merge_sampling_args(
            given.get("sampling_args"), given.get("max_tokens"), given.get("temperature")
        ),
        num_examples=given.get("num_examples", defaults.num_examples or DEFAULT_NUM_EXAMPLES),
        rollouts_per_example=given.get(
            "rollouts_per_example", defaults.rollouts_per_example or DEFAULT_ROLLOUTS_PER_EXAMPLE
        ),
        max_concurrent=given.get("max_concurrent", DEFAULT_MAX_CONCURRENT),
        extra_env_kwargs={**given.get("extra_env_kwargs", {}), **limit},
        state_columns=given.get("state_columns") or [],
    )
    return config.model_copy(update={"resume_path": _resume_path(config, given)})


def get_env_eval_defaults(env_id: str) -> dict[str, Any]:
    """Returns the defaults that an environment's ``pyproject.toml`` sets."""
    found = eval_defaults(env_id)
    defaults = {"num_examples": found.num_examples, "rollouts_per_example": found.rollouts_per_example}
    return {name: value for name, value in defaults.items() if value is not None}


def merge_sampling_args(
    sampling_args: Mapping[str, Any] | None, max_tokens: int | None, temperature: float | None
) -> dict[str, Any]:
    """Adds the values of single flags to sampling arguments; ``sampling_args`` takes precedence."""
    plain = {"max_tokens": max_tokens} | ({} if temperature is None else {"temperature": temperature})
    return {**plain, **(sampling_args or {})}


def _resume_path(config: EvalConfig, given: Mapping[str, Any]) -> Path | None:
    resume = given.get("resume_path") or given.get("resume")
    if not resume:
        return None
    if resume is not True:
        if not is_valid_eval_results_path(Path(resume)):
            raise ValueError(f"Resume path {resume} is not a valid evaluation results path")
        return Path(resume)
    found = find_latest_incomplete_eval_results_path(
        config.env_id, config.model, config.num_examples, config.rollouts_per_example, config.env_dir_path,
        config.output_dir,
    )  # fmt: skip
    if found is None:
        logger.info("No matching incomplete run found for --resume; starting a new run")
    return found


def _endpoint_of(given: Mapping[str, Any]) -> tuple[str | None, str, ClientConfig]:
    """Returns the endpoint's name in the registry (or None), the model and the endpoint.

    Flags override the provider, and the provider overrides the registry.
    """
    path = given.get("endpoints_path", DEFAULT_ENDPOINTS_PATH)
    is_explicit = {"api_key_var", "api_base_url"} <= given.keys() and "endpoint_id" not in given
    rows = _rows_of(given, {} if is_explicit else load_endpoints(path), path)
    provider = find_provider(given.get("provider", DEFAULT_PROVIDER))
    uses_provider = "provider" in given or not rows
    registered: Mapping[str, Any] = rows[0] if rows else {}
    model = registered.get("model", given.get("model", DEFAULT_MODEL))
    url, key = (provider.base_url, provider.api_key_var) if uses_provider else (registered["url"], registered["key"])
    kind = registered.get("api_client_type", provider.api_client_type)
    if "provider" in given and provider.api_client_type != PROVIDERS[DEFAULT_PROVIDER].api_client_type:
        kind = provider.api_client_type
    base_url = given.get("api_base_url", url)
    if not isinstance(base_url, str):
        raise ValueError("api_base_url lists are no longer supported: name several rows of one endpoint_id")  # noqa: TRY004
    headers = _headers(given.get("header"), "--header")
    own_headers = registered.get("extra_headers", {}) if is_same_host(base_url, url) else {}
    headers = {**given.get("headers", {}), **headers}
    endpoint_id = given.get("endpoint_id") or (given.get("model", DEFAULT_MODEL) if rows else None)
    is_replicated = len(rows) > 1 and not {"api_base_url", "provider"} & given.keys()
    return endpoint_id, model, ClientConfig(
        client_type=given.get("api_client_type", kind),
        api_key_var=given.get("api_key_var") or (key if is_same_host(base_url, url) else key_variable(base_url)),
        api_base_url=base_url,
        endpoint_configs=[_replica(row, headers) for row in rows] if is_replicated else [],
        extra_headers={**own_headers, **headers},
        extra_headers_from_state={
            "X-Session-ID": "example_id", **_headers(given.get("header_from_state"), "--header-from-state"),
        },
    )  # fmt: skip


def _rows_of(given: Mapping[str, Any], endpoints: Endpoints, path: str) -> Sequence[Endpoint]:
    if "endpoint_id" not in given:
        return endpoints.get(given.get("model", DEFAULT_MODEL), [])
    endpoint_id = given["endpoint_id"]
    if Path(path).suffix not in {"", ".toml"}:
        raise ValueError(f"endpoint_id is only supported with TOML endpoint registries, found {path!r}")
    if "model" in given:
        raise ValueError("An evaluation has either an endpoint_id or a model")
    if endpoint_id not in endpoints:
        raise ValueError(f"Endpoint id {endpoint_id!r} not found in endpoint registry at {path}")
    if len({row["model"] for row in endpoints[endpoint_id]}) > 1:
        raise ValueError(f"The rows of endpoint id {endpoint_id!r} have several models")
    return endpoints[endpoint_id]


def _replica(row: Endpoint, headers: Mapping[str, str]) -> EndpointClientConfig:
    """Returns a row as a replica; ``headers`` override those of the row."""
    own = {**row.get("extra_headers", {}), **headers}
    given = {"extra_headers": own} if own else {}
    return EndpointClientConfig(api_key_var=row["key"], api_base_url=row["url"], **given)


def _headers(lines: Sequence[str] | None, flag: str) -> dict[str, str]:
    found = {}
    for line in lines or ():
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"{flag} must be 'Name: Value', got: {line!r}")
        if not name.strip():
            raise ValueError(f"{flag} name cannot be empty, got: {line!r}")
        found[name.strip()] = value.strip()
    return found
