"""Configurations of verifiers: ``EvalConfig``, and TOML files of endpoints and evaluations."""

from __future__ import annotations

import itertools
import logging
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field

from nightjar.clients import ClientConfig
from nightjar.errors import ConfigError
from nightjar.evaluation.config import Endpoint, Endpoints
from nightjar.evaluation.config.run_config import RunConfig, parse_run_config

logger = logging.getLogger(__name__)

_SAME_NAMES = (
    "env_id", "env_args", "env_dir_path", "model", "sampling_args", "num_examples", "rollouts_per_example",
    "max_concurrent", "independent_scoring", "extra_env_kwargs", "max_retries",
)  # fmt: skip
FREEFORM_ABLATION_SWEEP_FIELDS = {"args", "env_args"}
FIELDS = {
    "env_id", "env_args", "env_dir_path", "extra_env_kwargs", "endpoints_path", "endpoint_id", "provider", "model",
    "api_client_type", "api_key_var", "api_base_url", "header", "headers", "header_from_state", "num_examples",
    "rollouts_per_example", "max_concurrent", "max_concurrent_generation", "max_concurrent_scoring", "max_tokens",
    "temperature", "sampling_args", "max_retries", "independent_scoring", "no_interleave_scoring", "state_columns",
    "save_results", "output_dir", "resume", "resume_path", "save_to_hf_hub", "hf_hub_dataset_name", "verbose", "debug",
    "disable_tui", "fullscreen", "tui", "abbreviated_summary", "heartbeat_url", "disable_env_server", "num_workers",
    "timeout",
}  # fmt: skip
_SPELLINGS = {"api_base_url": "url", "api_key_var": "key", "type": "api_client_type", "headers": "extra_headers"}


class EvalConfig(BaseModel):
    """One environment × one model in the fields of verifiers; ``run_config()`` returns Nightjar's configuration.

    ``num_workers``, ``disable_env_server``, ``verbose`` and ``disable_tui`` are accepted and ignored.

    Example:
        >>> config = EvalConfig(env_id="arithmetic", model="local", num_examples=20)
        >>> config.run_config().num_examples
        20
    """

    model_config = ConfigDict(extra="forbid")

    env_id: str
    """The environment: ``name``, ``owner/name`` or ``owner/name@version``."""
    env_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the environment's ``load_environment``."""
    env_dir_path: str = "./environments"
    """The folder where environments are developed."""
    endpoint_id: str | None = None
    """The endpoint's name in the registry from which ``client_config`` was made."""
    model: str
    """The model's name, as the endpoint knows it."""
    client_config: ClientConfig = Field(default_factory=ClientConfig)
    """The endpoint."""
    sampling_args: dict[str, Any] = Field(default_factory=dict)
    """``temperature``, ``max_tokens`` and so on."""
    num_examples: int = 5
    """Number of examples; -1 means all."""
    rollouts_per_example: int = 3
    """Rollouts of each example."""
    max_concurrent: int = 32
    """Maximum number of concurrent requests."""
    num_workers: int | str = "auto"
    independent_scoring: bool = False
    """Score each rollout on its own instead of with its group."""
    extra_env_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Attributes to set on the environment once it is loaded."""
    max_retries: int = 0
    """Further attempts at a rollout after transient errors."""
    disable_env_server: bool = False
    verbose: bool = False
    disable_tui: bool = False
    output_dir: str | None = None
    """The folder for run directories."""
    state_columns: list[str] | None = None
    """Keys of the state to add to the results."""
    save_results: bool = False
    """Write a run directory."""
    resume_path: Path | None = None
    """The run directory to resume."""
    save_to_hf_hub: bool = False
    """Push the results to the Hugging Face Hub."""
    hf_hub_dataset_name: str | None = None
    """The name of the dataset on the Hugging Face Hub."""

    def run_config(self) -> RunConfig:
        """Returns the configuration of the run, without the settings that say where results go."""
        client = self.client_config
        unsupported = {
            "client_config.endpoint_configs": client.endpoint_configs,
            "client_config.extra_headers": client.extra_headers,
            "client_config.extra_headers_from_state": client.extra_headers_from_state,
        }
        if names := [name for name, value in unsupported.items() if value]:
            raise ConfigError(f"A run does not support {', '.join(names)}. Use Environment.evaluate() instead")
        fields = {name: getattr(self, name) for name in _SAME_NAMES}
        return parse_run_config(
            {
                **fields,
                "base_url": client.api_base_url,
                "api_key_var": client.api_key_var,
                "api_client_type": client.client_type,
                "request_timeout": client.timeout,
                "state_columns": self.state_columns or [],
            }
        )


class EvalRunConfig(BaseModel):
    """Several evaluations that run together."""

    model_config = ConfigDict(extra="forbid")

    evals: list[EvalConfig]
    """The evaluations."""
    heartbeat_url: str | None = None
    """Accepted for compatibility and ignored."""


def resolve_endpoints_file(endpoints_path: str) -> Path | None:
    """Returns the file of an endpoint registry, given the file or its folder; None if the file does not exist."""
    path = Path(endpoints_path)
    file = path / "endpoints.toml" if path.is_dir() else path
    return file if file.is_file() else None


def load_endpoints(endpoints_path: str) -> Endpoints:
    """Returns the endpoints of a registry; none if the file is missing or (with a warning) invalid.

    Raises ``ValueError`` for a registry in Python.
    """
    if endpoints_path.endswith(".py"):
        raise ValueError(f"Python endpoint registries are not supported: {endpoints_path}. Write a TOML file")
    file = resolve_endpoints_file(endpoints_path)
    if file is None:
        return {}
    endpoints: Endpoints = {}
    try:
        for row in tomllib.loads(file.read_text("utf-8"))["endpoint"]:
            endpoint_id, endpoint = _endpoint(row)
            endpoints.setdefault(endpoint_id, []).append(endpoint)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("Ignoring the endpoint registry %s: %s: %s", file, type(error).__name__, error)
        return {}
    return endpoints


def _endpoint(row: Mapping[str, Any]) -> tuple[str, Endpoint]:
    fields: dict[str, Any] = {}
    for name, value in row.items():
        field = _SPELLINGS.get(name, name)
        if fields.get(field, value) != value:
            raise ValueError(f"{field!r} is set to two values, in two spellings")
        fields[field] = value
    if unknown := fields.keys() - {"endpoint_id", *Endpoint.__annotations__}:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    endpoint_id = fields.pop("endpoint_id")
    if not all(isinstance(fields[name], str) and fields[name] for name in ("model", "url", "key")):
        raise ValueError("model, url and key must be non-empty strings")
    if not isinstance(fields.get("extra_headers", {}), dict):
        raise ValueError("headers must be a table")  # noqa: TRY004 - as for the other fields
    return endpoint_id, cast("Endpoint", fields)


def normalize_env_id_alias(config: Mapping[str, Any], section: str) -> dict[str, Any]:
    if {"id", "env_id"} <= config.keys():
        raise ValueError(f"{section} has both id and env_id")
    return {"env_id" if name == "id" else name: value for name, value in config.items()}


def invalid_ablation_sweep_fields(sweep: Mapping[str, Any], valid_fields: set[str]) -> set[str]:
    return set(sweep) - valid_fields - FREEFORM_ABLATION_SWEEP_FIELDS


def load_toml_config(path: Path, extra_valid_fields: set[str] | None = None) -> list[dict[str, Any]]:
    """Returns the fields of each evaluation in a file; they override the fields at the top of the file.

    An ``[[ablation]]`` gives one evaluation for each combination of the values in its ``sweep``. Raises ``ValueError``
    for other fields than ``FIELDS`` and ``extra_valid_fields``, and if an evaluation names no environment.
    """
    if not path.is_file():
        raise FileNotFoundError(f"TOML config file not found: {path}")
    content = tomllib.loads(path.read_text("utf-8"))
    evaluations, ablations = content.pop("eval", []), content.pop("ablation", [])
    valid = FIELDS | (extra_valid_fields or set())
    shared = _checked(content, "the file", valid, path)
    tables = [_checked(normalize_env_id_alias(each, "[[eval]]"), "[[eval]]", valid, path) for each in evaluations]
    tables += [table for each in ablations for table in _ablated(each, valid, path)]
    if not tables:
        raise ValueError(f"{path} has no [[eval]]")
    found = [_over(shared, table) for table in tables]
    if any("env_id" not in each for each in found):
        raise ValueError(f"{path}: an evaluation has no env_id")
    return found


def _over(shared: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the fields of an evaluation into those of the file. A model replaces an endpoint_id, and the reverse."""
    replaced = {"model": "endpoint_id", "endpoint_id": "model"}
    left_out = {other for name, other in replaced.items() if name in table}
    return {**{name: value for name, value in shared.items() if name not in left_out}, **table}


def _ablated(table: Mapping[str, Any], valid: set[str], path: Path) -> Iterator[dict[str, Any]]:
    fixed = normalize_env_id_alias(table, "[[ablation]]")
    sweep = normalize_env_id_alias(fixed.pop("sweep", {}), "[ablation.sweep]")
    if invalid := invalid_ablation_sweep_fields(sweep, valid):
        raise ValueError(f"{path}: Invalid sweep fields: {sorted(invalid)}")
    if not sweep:
        raise ValueError(f"{path}: [[ablation]] needs a non-empty [ablation.sweep]")
    arguments = {**sweep.pop("args", {}), **sweep.pop("env_args", {})}
    fixed = _checked(fixed, "[[ablation]]", valid, path)
    twice = (fixed.keys() & sweep.keys()) | (fixed.get("env_args", {}).keys() & arguments.keys())
    if twice:
        raise ValueError(f"{path}: fixed and swept at once in [[ablation]]: {sorted(twice)}")
    names, arguments_of = [*sweep], [*arguments]
    for values in itertools.product(*sweep.values(), *arguments.values()):
        swept = dict(zip(arguments_of, values[len(names) :], strict=True))
        env_args = {"env_args": {**fixed.get("env_args", {}), **swept}} if swept else {}
        yield {**fixed, **dict(zip(names, values[: len(names)], strict=True)), **env_args}


def _checked(table: Mapping[str, Any], section: str, valid: set[str], path: Path) -> dict[str, Any]:
    renamed = {"env_args" if name == "args" else name: value for name, value in table.items()}
    if unknown := sorted(renamed.keys() - valid):
        raise ValueError(f"{path}: Invalid fields in {section}: {unknown}. Known are: {', '.join(sorted(valid))}")
    if "endpoints_path" in renamed:
        renamed["endpoints_path"] = str((path.parent / renamed["endpoints_path"]).resolve())
    return renamed
