"""``load_environment`` loads an environment by its name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from nightjar.core.environment_id import EnvironmentId, is_uri
from nightjar.core.extras import extra_of, installation
from nightjar.environments.environment import Environment
from nightjar.environments.packages.aliases import ALIAS_HINT, VERIFIERS, install_where_needed
from nightjar.environments.packages.catalog import in_file
from nightjar.environments.packages.lookup import environments_in, find_here
from nightjar.environments.packages.package import EnvironmentPackage, ModuleSource
from nightjar.errors import EnvironmentImportError, EnvironmentLoadError, MissingKeyError, NightjarError

logger = logging.getLogger(__name__)

_BENCHMARKS = "nightjar.environments.seeded.registry"
_importing = threading.RLock()
"""Allows one import at a time: a module that another thread is importing has no ``load_environment`` yet."""


def load_environment(env_id: str, **env_args: Any) -> Environment:
    """Loads an environment by calling the ``load_environment`` function of its module.

    The module is looked for in ``./environments``, among installed packages, and among the built-in benchmarks, in this
    order. If the module defines benchmarks instead (``nightjar.environments.seeded``), the benchmark with this name, or
    the only benchmark, is created.

    Args:
        env_id: a name (``my-env``, ``owner/my-env``, or ``owner/my-env@1.2`` to require this version) of the module
            ``my_env``; a file, ``path.py`` or ``path.py:name``; or a URI, see ``SCHEMES``.

    Raises:
        EnvironmentNotFoundError, EnvironmentVersionError, EnvironmentImportError: the module, its version or an import
            is missing. These are ValueErrors.
        EnvironmentLoadError: the environment's code failed or does not accept the arguments. This is a RuntimeError.
        MissingKeyError: keys that the environment needs are not set.

    Example:
        >>> env = load_environment("arithmetic", num_problems=3)
        >>> env.env_id, len(env.get_eval_dataset())
        ('arithmetic', 3)
    """
    if (place := in_file(env_id)) is not None:
        with environments_in(place.folder):
            return load_environment(place.env_id, **{**place.env_args, **env_args})
    if is_uri(env_id):
        from nightjar.environments.seeded.bridge import environment_of_uri

        env = environment_of_uri(env_id, env_args)
        env.env_id, env.env_args = env_id, env_args
        return env
    package = find_here(env_id)
    logger.debug("Loading environment %r from %s", env_id, package.module.path)
    with _importing, _explained(env_id, package, "cannot be imported"):
        module = import_source(env_id, package.module)
    function = _load_function(env_id, module, env_args)
    with _explained(env_id, package, "cannot be loaded"):
        env = function(**env_args)
    if not isinstance(env, Environment):
        hint = ALIAS_HINT if type(env).__module__.partition(".")[0] == VERIFIERS else ""
        raise EnvironmentLoadError(
            env_id, f"cannot be loaded: load_environment() returned {type(env).__name__}, not an Environment{hint}"
        )
    env.env_id = env.env_id or EnvironmentId.parse(env_id).without_version
    env.env_args = env.env_args or env_args
    return env


def import_source(env_id: str, source: ModuleSource) -> ModuleType:
    """Imports the file of an environment, even if another module has its name.

    The file's folder is added at the end of ``sys.path``: its modules can be imported, but hide no other modules.
    """
    install_where_needed()
    loaded = sys.modules.get(source.name)
    if loaded is not None:
        if _is_at(place := getattr(loaded, "__file__", None), source):
            return loaded
        raise EnvironmentLoadError(
            env_id,
            f"cannot be imported from {str(source.path)!r}: this process has another module {source.name!r} loaded, "
            f"from {place or 'Python itself'}",
        )
    found = importlib.util.find_spec(source.name)
    if found is not None and _is_at(found.origin, source):
        return importlib.import_module(source.name)
    if source.name in sys.stdlib_module_names:
        raise EnvironmentLoadError(env_id, f"cannot be imported: {source.name!r} is a module of Python. Rename it")
    if str(source.root.resolve()) not in sys.path:
        sys.path.append(str(source.root.resolve()))
    return _run_file(source)


def _is_at(place: str | None, source: ModuleSource) -> bool:
    return place is not None and Path(place).resolve() == source.path.resolve()


def _run_file(source: ModuleSource) -> ModuleType:
    path = source.path.resolve()
    folder = [str(path.parent)] if source.is_package else None
    spec = importlib.util.spec_from_file_location(source.name, path, submodule_search_locations=folder)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = sys.modules[source.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(source.name, None)
        raise
    return module


@contextmanager
def _explained(env_id: str, package: EnvironmentPackage, what_failed: str) -> Iterator[None]:
    try:
        yield
    except (MissingKeyError, EnvironmentLoadError):
        raise
    except ImportError as error:
        raise EnvironmentImportError(env_id, *_what_to_install(error, package)) from error
    except NightjarError as error:
        raise EnvironmentLoadError(env_id, f"{what_failed}: {error}") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}{_last_own_line(error, package.module)}"
        raise EnvironmentLoadError(env_id, f"{what_failed}: {reason}") from error


def _what_to_install(error: ImportError, package: EnvironmentPackage) -> tuple[str, str]:
    if "pip install" in str(error):
        return str(error), ""
    what = ""
    if error.name and (extra := extra_of(error.name)):
        what = f"Install what it needs: {installation(extra)}"
    elif package.origin == "local" and package.project is not None:
        what = f"Install what it needs: nightjar env install {package.project.path.parent}"
    elif isinstance(error, ModuleNotFoundError) and error.name:
        what = f"Install what it needs: pip install {error.name.partition('.')[0]}"
    return f"{type(error).__name__}: {error}{_last_own_line(error, package.module)}", what


def _last_own_line(error: BaseException, source: ModuleSource) -> str:
    path = source.path.resolve()
    lines = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if path == Path(frame.filename) or (source.is_package and path.parent in Path(frame.filename).parents)
    ]
    return f" ({lines[-1][0].name}, line {lines[-1][1]})" if lines else ""


def _load_function(env_id: str, module: ModuleType, env_args: dict[str, Any]) -> Callable[..., Any]:
    function: Any = getattr(module, "load_environment", None)
    if function is None and _BENCHMARKS in sys.modules:  # else the module cannot have registered a benchmark
        from nightjar.environments.seeded.bridge import benchmark_in

        if benchmark := benchmark_in(module, env_id, env_args):
            return benchmark
    if not callable(function):
        raise EnvironmentLoadError(
            env_id,
            f"cannot be loaded: Module {module.__name__!r} has no function load_environment(), in {module.__file__}",
        )
    try:
        inspect.signature(function).bind(**env_args)
    except TypeError as error:
        raise EnvironmentLoadError(
            env_id, f"does not take these arguments: {error}. It takes {inspect.signature(function)}"
        ) from error
    return cast("Callable[..., Any]", function)
