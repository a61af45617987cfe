"""The TOML files of verifiers: endpoints by name, and several evaluations in one file."""

from __future__ import annotations

import itertools
import logging
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from nightjar.config import Endpoint, Endpoints

logger = logging.getLogger(__name__)

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
"""What an evaluation in a file may say."""
_SPELLINGS = {"api_base_url": "url", "api_key_var": "key", "type": "api_client_type", "headers": "extra_headers"}


def resolve_endpoints_file(endpoints_path: str) -> Path | None:
    """Returns the file of a registry, which may be named by its folder; None where there is none."""
    path = Path(endpoints_path)
    file = path / "endpoints.toml" if path.is_dir() else path
    return file if file.is_file() else None


def load_endpoints(endpoints_path: str) -> Endpoints:
    """Returns the endpoints of a registry; none, with a warning, where it is missing or wrong.

    ``nightjar eval run`` refuses such a file.
    """
    file = resolve_endpoints_file(endpoints_path)
    if file is None:
        return {}
    endpoints: Endpoints = {}
    try:
        for row in tomllib.loads(file.read_text("utf-8"))["endpoint"]:
            endpoint_id, endpoint = _endpoint(row)
            endpoints.setdefault(endpoint_id, []).append(endpoint)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("The endpoint registry %s cannot be used: %s: %s", file, type(error).__name__, error)
        return {}
    return endpoints


def _endpoint(row: Mapping[str, Any]) -> tuple[str, Endpoint]:
    said: dict[str, Any] = {}
    for name, value in row.items():
        field = _SPELLINGS.get(name, name)
        if field in said:
            raise ValueError(f"{field!r} is there in two spellings")
        said[field] = value
    if unknown := said.keys() - {"endpoint_id", *Endpoint.__annotations__}:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    endpoint_id = said.pop("endpoint_id")
    if not all(isinstance(said[name], str) and said[name] for name in ("model", "url", "key")):
        raise ValueError("model, url and key must be texts")
    return endpoint_id, cast("Endpoint", said)


def normalize_env_id_alias(config: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Returns a table with ``env_id`` in the place of ``id``.

    Raises:
        ValueError: it has both; the section of the file is named.
    """
    if {"id", "env_id"} <= config.keys():
        raise ValueError(f"{section} has both 'id' and 'env_id'")
    return {"env_id" if name == "id" else name: value for name, value in config.items()}


def invalid_ablation_sweep_fields(sweep: Mapping[str, Any], valid_fields: set[str]) -> set[str]:
    """Returns the names in a sweep that are no fields."""
    return set(sweep) - valid_fields - FREEFORM_ABLATION_SWEEP_FIELDS


def load_toml_config(path: Path, extra_valid_fields: set[str] | None = None) -> list[dict[str, Any]]:
    """Returns what each evaluation of a file says: its own fields, over those of the whole file.

    An ``[[ablation]]`` is an evaluation for each combination of the values in its ``sweep``.

    Args:
        path: the file.
        extra_valid_fields: what may be said besides ``FIELDS``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no TOML, says nothing of an environment, or says what nobody knows.
    """
    if not path.is_file():
        raise FileNotFoundError(f"TOML config file not found: {path}")
    said = tomllib.loads(path.read_text("utf-8"))
    evaluations, ablations = said.pop("eval", []), said.pop("ablation", [])
    valid = FIELDS | (extra_valid_fields or set())
    shared = _checked(said, "the file", valid, path)
    tables = [_checked(normalize_env_id_alias(each, "[[eval]]"), "[[eval]]", valid, path) for each in evaluations]
    tables += [one for each in ablations for one in _ablated(each, valid, path)]
    if not tables:
        raise ValueError(f"{path} has no [[eval]]")
    found = [{**shared, **table} for table in tables]
    if any("env_id" not in each for each in found):
        raise ValueError(f"{path}: an evaluation has no env_id")
    return found


def _ablated(table: Mapping[str, Any], valid: set[str], path: Path) -> Iterator[dict[str, Any]]:
    fixed = normalize_env_id_alias(table, "[[ablation]]")
    sweep = normalize_env_id_alias(fixed.pop("sweep", {}), "[ablation.sweep]")
    if invalid := invalid_ablation_sweep_fields(sweep, valid):
        raise ValueError(f"{path}: unknown fields in [ablation.sweep]: {sorted(invalid)}")
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
        raise ValueError(f"{path}: unknown fields in {section}: {unknown}. Known are: {', '.join(sorted(valid))}")
    if "endpoints_path" in renamed:
        renamed["endpoints_path"] = str(path.parent / renamed["endpoints_path"])
    return renamed
