"""``get_environment``: from a name, a file or a URI to a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nightjar.envs.loading import import_source, load_environment
from nightjar.envs.seeded.eval_environment import EvalEnvironment
from nightjar.envs.seeded.registry import registered, registered_in, registered_names
from nightjar.envs.seeded.reverse import as_benchmark
from nightjar.envs.seeded.schemes import benchmark_of_uri
from nightjar.errors import ConfigError
from nightjar.packages import ModuleSource, installed_environments
from nightjar.packages.names import is_uri


def get_environment(name: str, **kwargs: Any) -> EvalEnvironment:
    """Returns a benchmark.

    Args:
        name: what ``register`` or ``benchmark`` called it; ``path.py`` or ``path.py:name``; a URI; or any environment
            of one turn.
        **kwargs: what it is made with.

    Raises:
        EnvironmentNotFoundError: nothing is called so. A ValueError.
        ConfigError: the scheme of the URI is unknown, or the environment takes several turns.

    Example:
        >>> import asyncio
        >>> asyncio.run(get_environment("arithmetic", num_problems=3).dataset_size())
        3
    """
    if is_uri(name):
        return benchmark_of_uri(name, **kwargs)
    if (known := registered(name)) is not None:
        return known.make(**kwargs)
    return as_benchmark(load_environment(name, **kwargs))


def list_environments() -> list[str]:
    """Returns the names of the benchmarks that are registered here, and of all environments that can be loaded."""
    return sorted({*registered_names(), *installed_environments()})


def load_benchmark_file(file_path: str) -> list[str]:
    """Imports a file, and returns the names of the benchmarks that it defines.

    Raises:
        EnvironmentLoadError: its code raised.
    """
    path = Path(file_path)
    if not path.is_file():
        raise ConfigError(f"There is no file {file_path!r}")
    import_source(path.stem, ModuleSource(path.stem, path, path.parent))
    return [each.name for each in registered_in(path)]
