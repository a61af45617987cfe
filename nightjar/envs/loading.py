"""``load_environment``: from a name to an environment."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from nightjar.envs.environment import Environment
from nightjar.errors import ConfigError, EnvironmentNotFoundError, NightjarError
from nightjar.runs import ENVIRONMENTS_DIR

BUILT_IN = "nightjar.benchmarks"


def load_environment(env_id: str, **env_args: Any) -> Environment:
    """Loads an environment by calling the ``load_environment`` function of its module.

    The module is looked for in ``./environments``, among installed packages, and among the built-in
    benchmarks, in this order.

    Args:
        env_id: ``my-env`` or ``owner/my-env``; the module is ``my_env``.
        **env_args: passed on.

    Raises:
        EnvironmentNotFoundError: there is no such module.
        ConfigError: the module cannot be imported, has no ``load_environment``, or does not take the arguments.
    """
    module = _import_module(env_id)
    function = getattr(module, "load_environment", None)
    if function is None:
        raise ConfigError(f"Module {module.__name__!r} has no function load_environment()")
    _check_arguments(env_id, function, env_args)
    try:
        env = function(**env_args)
    except NightjarError:
        raise
    except Exception as error:
        raise ConfigError(f"Environment {env_id!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(env, Environment):
        raise ConfigError(f"load_environment() of {env_id!r} returned {type(env).__name__}, not an Environment")
    env.env_id = env.env_id or env_id
    env.env_args = env.env_args or env_args
    return env


def installed_environments() -> list[str]:
    """Returns the names of the built-in environments and of those in ``./environments``."""
    built_in = importlib.import_module(BUILT_IN)
    names = {module.name for module in pkgutil.iter_modules(built_in.__path__)}
    if ENVIRONMENTS_DIR.is_dir():
        names |= {path.stem for path in ENVIRONMENTS_DIR.iterdir() if _is_environment(path)}
    return sorted(name.replace("_", "-") for name in names)


def environment_version(env_id: str) -> str | None:
    """Returns the version of an environment's package; None where it is no package."""
    name = env_id.rpartition("/")[2]
    for distribution in (name, name.replace("_", "-")):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _import_module(env_id: str) -> ModuleType:
    name = env_id.rpartition("/")[2].replace("-", "_")
    if not name.isidentifier():
        raise EnvironmentNotFoundError(env_id, installed_environments())
    local = str(
        (ENVIRONMENTS_DIR / name).resolve() if (ENVIRONMENTS_DIR / name).is_dir() else ENVIRONMENTS_DIR.resolve()
    )
    if _exists_locally(name) and local not in sys.path:
        sys.path.insert(0, local)
    for candidate in (name, f"{BUILT_IN}.{name}"):
        if importlib.util.find_spec(candidate) is not None:
            try:
                return importlib.import_module(candidate)
            except Exception as error:
                raise ConfigError(
                    f"Environment {env_id!r} cannot be imported: {type(error).__name__}: {error}"
                ) from error
    raise EnvironmentNotFoundError(env_id, installed_environments())


def _exists_locally(name: str) -> bool:
    return any(_is_environment(path) and path.stem == name for path in ENVIRONMENTS_DIR.glob("*"))


def _is_environment(path: Path) -> bool:
    return path.suffix == ".py" or (path.is_dir() and (path / f"{path.name}.py").is_file())


def _check_arguments(env_id: str, function: Any, env_args: dict[str, Any]) -> None:
    try:
        inspect.signature(function).bind(**env_args)
    except TypeError as error:
        raise ConfigError(
            f"Environment {env_id!r} does not take these arguments: {error}. It takes {inspect.signature(function)}"
        ) from error
