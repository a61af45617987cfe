"""The command of verifiers, for programs that call ``verifiers.scripts.eval.main()``.

What somebody types is ``nightjar eval run``, which takes the same flags and more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nightjar.adapters.verifiers.config_files import load_endpoints, load_toml_config
from nightjar.adapters.verifiers.eval_config import EvalConfig, EvalRunConfig
from nightjar.adapters.verifiers.evaluations import get_log_level, run_evaluations, run_evaluations_tui
from nightjar.adapters.verifiers.paths import find_latest_incomplete_eval_results_path, is_valid_eval_results_path
from nightjar.clients import ClientConfig, EndpointClientConfig
from nightjar.config import PROVIDERS, Endpoint, Endpoints, find_provider
from nightjar.logs import setup_logging
from nightjar.packages import eval_defaults

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
    "env_args", "endpoint_id", "independent_scoring", "max_retries", "output_dir", "save_results", "save_to_hf_hub",
    "hf_hub_dataset_name", "num_workers", "disable_env_server", "verbose",
)  # fmt: skip
_SWITCHES = {
    "independent_scoring": "-i", "no_interleave_scoring": "-N", "save_results": "-s", "save_to_hf_hub": "-H",
    "verbose": "-v", "tui": "-u", "fullscreen": "-f", "debug": "-d", "abbreviated_summary": "-A",
    "disable_env_server": None,
}  # fmt: skip


def main() -> None:
    """Runs the evaluations that the command line, or the TOML file that it names, asks for."""
    asked = vars(_parser().parse_args())
    setup_logging(get_log_level(bool(asked.get("verbose"))))
    name = asked["env_id_or_config"]
    display = {key: asked.get(key) for key in ("verbose", "debug", "heartbeat_url")}
    tables = load_toml_config(Path(name)) if name.endswith(".toml") else [{**asked, "env_id": name}]
    config = EvalRunConfig(evals=[*map(build_eval_config, tables)], heartbeat_url=display["heartbeat_url"])
    is_plain = display["debug"] or asked.get("disable_tui")
    asyncio.run(run_evaluations(config) if is_plain else run_evaluations_tui(config))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vf-eval", description="Evaluate a model in an environment.")
    parser.add_argument("env_id_or_config", help="An environment, or a TOML file of evaluations.")
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
    """Returns the configuration of an evaluation.

    Args:
        raw: what was said, by the names of ``config_files.FIELDS``; what is None, or missing, is what the
            environment's ``pyproject.toml`` says, or the default.

    Raises:
        ValueError: the endpoint is not known, a header is malformed, or there is nothing to go on with.
    """
    said = {name: value for name, value in raw.items() if value is not None}
    env_id, env_dir_path = said["env_id"], said.get("env_dir_path", DEFAULT_ENV_DIR_PATH)
    defaults = eval_defaults(env_id, Path(env_dir_path))
    model, client = _endpoint_of(said)
    limit = {"timeout_seconds": said["timeout"]} if "timeout" in said else {}
    config = EvalConfig(
        **{name: said[name] for name in _SAME if name in said},
        env_id=env_id,
        env_dir_path=env_dir_path,
        model=model,
        client_config=client,
        sampling_args=merge_sampling_args(said.get("sampling_args"), said.get("max_tokens"), said.get("temperature")),
        num_examples=said.get("num_examples", defaults.num_examples or DEFAULT_NUM_EXAMPLES),
        rollouts_per_example=said.get(
            "rollouts_per_example", defaults.rollouts_per_example or DEFAULT_ROLLOUTS_PER_EXAMPLE
        ),
        max_concurrent=said.get("max_concurrent", DEFAULT_MAX_CONCURRENT),
        extra_env_kwargs={**said.get("extra_env_kwargs", {}), **limit},
        state_columns=said.get("state_columns") or [],
    )
    return config.model_copy(update={"resume_path": _resume_path(config, said)})


def merge_sampling_args(
    sampling_args: Mapping[str, Any] | None, max_tokens: int | None, temperature: float | None
) -> dict[str, Any]:
    """Returns sampling arguments with those that have a flag of their own, unless they say these themselves."""
    plain = {"max_tokens": max_tokens} | ({} if temperature is None else {"temperature": temperature})
    return {**plain, **(sampling_args or {})}


def _resume_path(config: EvalConfig, said: Mapping[str, Any]) -> Path | None:
    asked = said.get("resume_path") or said.get("resume")
    if not asked:
        return None
    if asked is not True:
        if not is_valid_eval_results_path(Path(asked)):
            raise ValueError(f"Resume path {asked} is not a valid evaluation results path")
        return Path(asked)
    found = find_latest_incomplete_eval_results_path(
        config.env_id, config.model, config.num_examples, config.rollouts_per_example, config.env_dir_path,
        config.output_dir,
    )  # fmt: skip
    if found is None:
        logger.info("No matching incomplete run found for --resume; starting a new run")
    return found


def _endpoint_of(said: Mapping[str, Any]) -> tuple[str, ClientConfig]:
    """Returns the model's name and where it is: flags over the provider over the registry."""
    path = said.get("endpoints_path", DEFAULT_ENDPOINTS_PATH)
    is_told = {"api_key_var", "api_base_url"} <= said.keys() and "endpoint_id" not in said
    rows = _rows_of(said, {} if is_told else load_endpoints(path), path)
    provider = find_provider(said.get("provider", DEFAULT_PROVIDER))
    is_providers = "provider" in said or not rows
    registered: Mapping[str, Any] = rows[0] if rows else {}
    model = registered.get("model", said.get("model", DEFAULT_MODEL))
    url, key = (provider.base_url, provider.api_key_var) if is_providers else (registered["url"], registered["key"])
    kind = registered.get("api_client_type", provider.api_client_type)
    if "provider" in said and provider.api_client_type != PROVIDERS[DEFAULT_PROVIDER].api_client_type:
        kind = provider.api_client_type
    base_url = said.get("api_base_url", url)
    if not isinstance(base_url, str):
        raise ValueError("api_base_url lists are no longer supported: name several rows of one endpoint_id")  # noqa: TRY004
    headers = _headers(said.get("header"), "--header")
    is_replicated = len(rows) > 1 and not {"api_base_url", "provider"} & said.keys()
    return model, ClientConfig(
        client_type=said.get("api_client_type", kind),
        api_key_var=said.get("api_key_var", key),
        api_base_url=base_url,
        endpoint_configs=[_replica(row) for row in rows] if is_replicated else [],
        extra_headers={**registered.get("extra_headers", {}), **said.get("headers", {}), **headers},
        extra_headers_from_state={
            "X-Session-ID": "example_id", **_headers(said.get("header_from_state"), "--header-from-state"),
        },
    )  # fmt: skip


def _rows_of(said: Mapping[str, Any], endpoints: Endpoints, path: str) -> Sequence[Endpoint]:
    if "endpoint_id" not in said:
        return endpoints.get(said.get("model", DEFAULT_MODEL), [])
    endpoint_id = said["endpoint_id"]
    if "model" in said:
        raise ValueError("An evaluation has either an endpoint_id or a model")
    if endpoint_id not in endpoints:
        raise ValueError(f"Endpoint id {endpoint_id!r} not found in endpoint registry at {path}")
    if len({row["model"] for row in endpoints[endpoint_id]}) > 1:
        raise ValueError(f"The rows of endpoint id {endpoint_id!r} have several models")
    return endpoints[endpoint_id]


def _replica(row: Endpoint) -> EndpointClientConfig:
    own = {"extra_headers": row["extra_headers"]} if "extra_headers" in row else {}
    return EndpointClientConfig(api_key_var=row["key"], api_base_url=row["url"], **own)


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
