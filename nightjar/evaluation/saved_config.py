"""What a run was started with, to be looked at or to be gone on with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nightjar.config import PROVIDERS, RunConfig, parse_run_config
from nightjar.errors import ConfigError, RunDirectoryError
from nightjar.runs import RunDirectory

_OF_PROVIDER = ("base_url", "api_key_var", "api_client_type")


def saved_config(directory: RunDirectory, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Returns what a run was started with.

    Args:
        directory: the run directory.
        changes: fields that are to be other; what followed from a field that changes is worked out anew.

    Raises:
        RunDirectoryError: there is no run, or its configuration is of no use.
        ConfigError: a change is wrong.
    """
    saved, changes = directory.read_config(), changes or {}
    values = _known(saved)
    try:
        parse_run_config(values)
    except ConfigError as error:
        raise RunDirectoryError(f"{directory.path / 'config.json'} cannot be used: {error}") from error
    values["sampling_args"] = {
        name: value
        for name, value in values["sampling_args"].items()
        if name not in changes or saved.get(name) != value
    }
    if changes.get("provider") in PROVIDERS:
        values = {name: value for name, value in values.items() if name not in _OF_PROVIDER}
    return parse_run_config({**values, **changes})


def restored_config(saved: Mapping[str, Any]) -> RunConfig:
    """Returns the configuration of a run, of what its ``config.json`` says.

    Raises:
        ConfigError: it is of no use, as that of a run that another program made.
    """
    return parse_run_config(_known(saved))


def rescoring_command(saved: Mapping[str, Any]) -> list[str] | None:
    """Returns the words that score a run's source again as it did; None where it asked the model itself.

    Args:
        saved: what its ``config.json`` says.

    Example:
        >>> rescoring_command({"rescored_from": "0a1b", "rubric": "strict.py:exact", "env_args": {}})
        ['nightjar', 'eval', 'rescore', '0a1b', '--rubric', 'strict.py:exact']
    """
    if not saved.get("rescored_from"):
        return None
    rubric = ["--rubric", saved["rubric"]] if saved.get("rubric") else []
    env_args = ["--env-args", json.dumps(saved["env_args"], ensure_ascii=False)] if saved.get("env_args") else []
    return ["nightjar", "eval", "rescore", str(saved["rescored_from"]), *rubric, *env_args]


def _known(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {name: saved[name] for name in RunConfig.model_fields if name in saved}
