"""Finds benchmarks by name or URI. ``@register`` and ``@benchmark`` add the names when a file is imported."""

from __future__ import annotations

import inspect
import logging
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from nightjar.environments.seeded.eval_environment import EvalEnvironment
from nightjar.errors import ConfigError

logger = logging.getLogger(__name__)

BenchmarkClass = TypeVar("BenchmarkClass", bound=type[EvalEnvironment])
Factory: TypeAlias = Callable[..., EvalEnvironment]
SCHEMES = {
    "container": "nightjar.compat.nemo.environments.container:container_environment",
    "gym": "nightjar.compat.nemo.environments.gym:gym_environment",
    "lm-eval": "nightjar.compat.nemo.environments.lm_eval:lm_eval_environment",
    "skills": "nightjar.compat.nemo.environments.skills:skills_environment",
    "vlmevalkit": "nightjar.compat.nemo.environments.vlmevalkit:vlmevalkit_environment",
}
"""Maps the scheme of a URI to the ``module:function`` that creates the benchmark."""
ENVIRONMENT_SCHEMES = {
    "harbor": "nightjar.environments.agents.harbor_env:harbor_environment",
    "inspect": "nightjar.environments.inspect_tasks.address:inspect_environment",
}
"""Maps the scheme of a URI to the ``module:function`` that creates an environment."""


@dataclass(frozen=True)
class Registered:
    """A benchmark: its name in lower case, its factory, and where it is defined."""

    name: str
    make: Factory
    file: Path | None
    place: str | int = ""


_registered: dict[str, Registered] = {}


def register(name: str) -> Callable[[BenchmarkClass], BenchmarkClass]:
    """Registers a class of benchmarks under a name, ignoring case."""

    def decorate(cls: BenchmarkClass) -> BenchmarkClass:
        if "name" not in vars(cls):
            cls.name = name
        add(name, cls, _file_of(cls), cls.__qualname__)
        return cls

    return decorate


def add(name: str, make: Factory, file: Path | None, place: str | int = "") -> None:
    """Registers a benchmark; replaces another definition of the same name with a warning."""
    known = _registered.get(name.lower())
    if known is not None and (known.file, known.place) != (file, place):
        logger.warning(
            "Benchmark %r is defined twice: %s (%s) replaces %s (%s)",
            name, file, place, known.file, known.place,
        )  # fmt: skip
    _registered[name.lower()] = Registered(name.lower(), make, file, place)


def registered(name: str) -> Registered | None:
    return _registered.get(name.lower())


def registered_in(file: Path) -> list[Registered]:
    return [each for each in _registered.values() if each.file == file.resolve()]


def registered_names() -> list[str]:
    return sorted(_registered)


def _file_of(defined: type) -> Path | None:
    try:
        return Path(inspect.getfile(defined)).resolve()
    except (TypeError, OSError):  # defined in a prompt or a text
        return None


def benchmark_of_uri(uri: str, **kwargs: Any) -> EvalEnvironment:
    scheme = uri.partition("://")[0]
    place = SCHEMES.get(scheme)
    if place is None:
        known = ", ".join(f"{name}://" for name in sorted(SCHEMES | ENVIRONMENT_SCHEMES))
        raise ConfigError(f"Unknown scheme {scheme!r}://. Choose one of: {known}")
    make: Factory = pkgutil.resolve_name(place)
    return make(uri, **kwargs)
