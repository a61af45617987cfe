"""Compose files of tasks that describe one container, as the template of Harbor's older tasks does.

Such a file repeats what Harbor itself decides, in variables that Harbor fills in: image, limits, folders of logs.
Everything else that a file may ask for is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nightjar.core.yaml_files import read_yaml
from nightjar.errors import ConfigError

MAIN = "main"
_TOP = frozenset({"services", "version", "name"})
_CONTEXTS = ("${CONTEXT_DIR}", ".", "./")
_DOCKERFILES = ("${CONTEXT_DIR}/Dockerfile", "Dockerfile", "./Dockerfile")
_IMAGES = ("${MAIN_IMAGE_NAME}", "${PREBUILT_IMAGE_NAME}")
_WAITING = re.compile(r"((/bin/)?(ba)?sh -c )?(sleep infinity|tail -f /dev/null)")
_LOGS = re.compile(r"\$\{HOST_(\w+)_PATH\}:\$\{ENV_\1_PATH\}")
_LIMITS = (("cpus", "${CPUS}"), ("memory", "${MEMORY}"))
_TESTS = ("${TEST_DIR}", "/tests")


class _RefusedError(Exception):
    """A part of a compose file that cannot be done here."""


@dataclass(frozen=True)
class Compose:
    """The settings of ``[environment]`` that a compose file replaces, its variables, and why it cannot be used."""

    settings: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    problem: str | None = None


def read_compose(path: Path) -> Compose:
    """Reads a compose file. A file that needs more than one plain container has a ``problem``."""
    try:
        return _compose_of(_mapping(read_yaml(path) or {}, "the file"))
    except (_RefusedError, ConfigError) as error:
        return Compose(problem=str(error))


def _compose_of(content: Mapping[str, Any]) -> Compose:
    services = _mapping(content.get("services") or {}, "services")
    if [*services] != [MAIN]:
        found = ", ".join(map(str, services)) or "none"
        raise _RefusedError(f"a rollout has one container, the service {MAIN!r}; found {found}")
    service = _mapping(services[MAIN] or {}, MAIN)
    if unknown := [*map(str, content.keys() - _TOP), *map(str, service.keys() - _PARTS.keys() - {"environment"})]:
        raise _RefusedError(f"{', '.join(sorted(unknown))} cannot be used here")
    settings: dict[str, Any] = {}
    for name, value in service.items():
        settings |= _PARTS[name](value) if name in _PARTS else {}
    if "build" in service:
        settings.pop("docker_image", None)
    return Compose(settings, _variables(service.get("environment") or {}))


def _build(value: Any) -> dict[str, Any]:
    parts = {"context": value} if isinstance(value, str) else _mapping(value, "build")
    if parts.keys() - {"context", "dockerfile"}:
        raise _RefusedError("build may have only context and dockerfile")
    _check("build.context", parts.get("context", "."), _CONTEXTS)
    _check("build.dockerfile", parts.get("dockerfile", "Dockerfile"), _DOCKERFILES)
    return {}


def _image(value: Any) -> dict[str, Any]:
    return {} if value in _IMAGES else {"docker_image": _plain("image", value)}


def _command(value: Any) -> dict[str, Any]:
    line = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    if not _WAITING.fullmatch(line):
        raise _RefusedError(f"command may only wait (sleep infinity); found {line!r}")
    return {}


def _volumes(value: Any) -> dict[str, Any]:
    for each in value if isinstance(value, list) else [value]:
        if not (isinstance(each, str) and _LOGS.fullmatch(each)):
            raise _RefusedError(f"volumes may be only Harbor's folders of logs; found {each!r}")
    return {}


def _deploy(value: Any) -> dict[str, Any]:
    known = [{"resources": {"limits": dict(limits)}} for limits in (_LIMITS, _LIMITS[:1], _LIMITS[1:])]
    if value not in known:
        raise _RefusedError("deploy may be only the limits ${CPUS} and ${MEMORY}; set them in task.toml")
    return {}


def _network_mode(value: Any) -> dict[str, Any]:
    _check("network_mode", value, ("none", "bridge"))
    return {"network": "none"} if value == "none" else {}


_PARTS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "build": _build,
    "image": _image,
    "command": _command,
    "volumes": _volumes,
    "deploy": _deploy,
    "network_mode": _network_mode,
    "working_dir": lambda value: {"workdir": _plain("working_dir", value)},
}


def _variables(value: Any) -> dict[str, str]:
    if isinstance(value, list):
        value = {name: text if sign else None for name, sign, text in (str(each).partition("=") for each in value)}
    variables = _mapping(value, "environment")
    if missing := [str(name) for name, each in variables.items() if each is None]:
        raise _RefusedError(f"environment has no value for {', '.join(missing)}")
    return {str(name): str(each).replace(*_TESTS) for name, each in variables.items()}


def _plain(name: str, value: Any) -> str:
    if not isinstance(value, str) or "$" in value:
        raise _RefusedError(f"{name} may be only a text without variables; found {value!r}")
    return value


def _check(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise _RefusedError(f"{name} may be {' or '.join(known)}; found {value!r}")


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _RefusedError(f"{name} is not a table")
    return value
