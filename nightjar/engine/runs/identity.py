"""The identity of a run: its id, stored before the first request, and the settings that no resume may change."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from nightjar.core.environment_id import EnvironmentId
from nightjar.core.parts import Part
from nightjar.engine.runs.directory import FORMAT, RunDirectory, format_of, new_run_id
from nightjar.errors import ConfigError, ResumeMismatchError

_RECORDED = (
    "env_id", "env_args", "extra_env_kwargs", "model", "base_url", "api_client_type", "sampling_args",
    "rollouts_per_example",
)  # fmt: skip
"""The settings in ``metadata.json`` that never change during a run."""

_FINGERPRINT_CHARACTERS = 16
_OF_IMPORTS = ("env_id", "model")
logger = logging.getLogger(__name__)
_DRAWN = re.compile(r"[0-9a-f]{12}")


def check_same(
    directory: RunDirectory, asked: Mapping[str, Any], hashes: Sequence[str], env_version: str | None
) -> None:
    """Raises ``ResumeMismatchError`` if a run on disk has other settings, examples or environment version."""
    saved = directory.read_config()
    found = differences(saved, asked)
    count = saved["selected_examples"]
    current = {"env_version": env_version, "dataset_fingerprint": fingerprint(hashes[:count])}
    found |= {name: (saved.get(name), value) for name, value in current.items() if saved.get(name) != value}
    if len(hashes) < count:
        found["num_examples"] = (count, len(hashes))
        found.pop("dataset_fingerprint", None)
    if found:
        raise ResumeMismatchError(str(directory.path), found)


def check_recorded(directory: RunDirectory, asked: Mapping[str, Any], num_examples: int | None) -> None:
    """Raises ``ResumeMismatchError`` if a folder without ``config.json``, such as verifiers writes, has another run."""
    try:
        saved = orjson.loads((directory.path / "metadata.json").read_bytes())
    except (OSError, ValueError):
        return
    found = recorded_differences(saved, asked)
    if num_examples is not None and num_examples < (saved.get("num_examples") or 0):
        found["num_examples"] = (saved["num_examples"], num_examples)
    if found:
        raise ResumeMismatchError(str(directory.path), found)


def differences(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns (saved value, requested value) by field. An unset value equals a field that older runs do not have."""
    pairs = {name: (saved.get(name), asked[name]) for name in asked}
    return {name: pair for name, pair in pairs.items() if _comparable(name, pair[0]) != _comparable(name, pair[1])}


def recorded_differences(held: Mapping[str, Any], offered: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns (first value, second value) for each known setting that differs between two records of one run.

    If both records are of imported runs, only the fields that form the id are compared.
    """
    are_imported = bool(held.get("original")) and bool(offered.get("original"))
    names = _OF_IMPORTS if are_imported else _RECORDED
    known = {name: offered[name] for name in names if None not in (held.get(name), offered.get(name))}
    found = differences(held, known)
    return {name: found[name] for name in _RECORDED if name in found}


def _comparable(name: str, value: Any) -> Any:
    """Removes differences of spelling: an environment's owner and version, and middleware that only logs."""
    if name == "middleware":
        value = [each for each in value or () if each.get("use") != "log"]
    return EnvironmentId.parse(value).listed if value and name == "env_id" else value or None


def fingerprint(hashes: Iterable[str]) -> str:
    """Returns 16 hex digits that identify a sequence of examples by the hashes and their order."""
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:_FINGERPRINT_CHARACTERS]


def id_for(directory: RunDirectory) -> str:
    name = directory.path.name
    return name if _is_given_by_nightjar(name) else new_run_id()


def settle_id(directory: RunDirectory, given: str) -> str:
    """Returns the id of the run that is being opened.

    A run without a stored id gets a new id, unless it is published.
    """
    if not directory.exists():
        settled = directory.stored_id() or given
    elif _needs_id(directory):
        settled = new_run_id()
        if directory.has_metadata():
            directory.write_metadata({**directory.read_metadata(), "run_id": settled})
        logger.info(
            "The run in %s had only its folder's name (%r) as its id. Its new id is %s",
            directory.path, directory.run_id, settled,
        )  # fmt: skip
    else:
        settled = directory.run_id
    directory.run_id = settled
    return settled


def give_new_id(directory: RunDirectory) -> str:
    """Gives the run in a locked directory a new id. Raises ``ConfigError`` for a part, which keeps its run's id."""
    if Part.of(directory.run_id):
        raise ConfigError(f"{directory.run_id!r} is a part of a run and keeps its id")
    before, drawn = directory.run_id, new_run_id()
    metadata = {name: value for name, value in directory.read_metadata().items() if name != "published_at"}
    directory.write_metadata({**metadata, "run_id": drawn})
    if directory.exists():
        store_id(directory, drawn)
    directory.run_id = drawn
    logger.info("Run %s has a new id: %s", before, drawn)
    return drawn


def store_id(directory: RunDirectory, run_id: str) -> None:
    directory.write_config({**directory.read_config(), "run_id": run_id, "format": FORMAT})


def _is_given_by_nightjar(run_id: str) -> bool:
    return bool(_DRAWN.fullmatch(run_id)) or Part.of(run_id) is not None


def _needs_id(directory: RunDirectory) -> bool:
    if format_of(directory.read_config()) >= FORMAT or _is_given_by_nightjar(directory.run_id):
        return False
    metadata = directory.read_metadata() if directory.has_metadata() else {}
    return not (metadata.get("published_at") or metadata.get("original"))
