"""``load_environment``: from a name to an environment."""

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
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from nightjar.envs.environment import Environment
from nightjar.envs.seeded.bridge import as_environment
from nightjar.envs.seeded.eval_environment import EvalEnvironment
from nightjar.envs.seeded.registry import Registered, registered_in
from nightjar.envs.seeded.schemes import benchmark_of_uri
from nightjar.errors import EnvironmentImportError, EnvironmentLoadError, MissingKeyError, NightjarError
from nightjar.packages import EnvironmentId, EnvironmentPackage, ModuleSource, environments_in, find_here, nemo_aliases
from nightjar.packages.aliases import ALIAS_HINT, install_where_needed
from nightjar.packages.aliases import ROOT as ALIASED
from nightjar.packages.catalog import in_file
from nightjar.packages.names import is_uri, listed_name, module_of

logger = logging.getLogger(__name__)

_importing = threading.RLock()
"""Lets one thread import at a time: a module that another is still importing has no load_environment yet."""


def load_environment(env_id: str, **env_args: Any) -> Environment:
    """Loads an environment by calling the ``load_environment`` function of its module.

    A module without one may define benchmarks (``nightjar.envs.seeded``): then that of this name is made, or the only
    one. The module is looked for in ``./environments``, among installed packages, and among the built-in
    benchmarks, in this order.

    Args:
        env_id: ``my-env``, ``owner/my-env`` or ``owner/my-env@1.2``; the module is ``my_env``. A version is compared
            with the one that is there. Or a file, ``path.py`` or ``path.py:name``; or a URI, see ``SCHEMES``.
        **env_args: passed on.

    Raises:
        EnvironmentNotFoundError: there is no such module. A ValueError.
        EnvironmentVersionError: it is there, in another version. A ValueError.
        EnvironmentImportError: it imports what is not installed. A ValueError.
        EnvironmentLoadError: its code raised, it has no ``load_environment``, or that does not take the arguments. A
            RuntimeError.
        MissingKeyError: it asks for keys that are not set.

    Example:
        >>> env = load_environment("arithmetic", num_problems=3)
        >>> env.env_id, len(env.get_eval_dataset())
        ('arithmetic', 3)
    """
    if (place := in_file(env_id)) is not None:
        with environments_in(place.folder):
            return load_environment(place.env_id, **{**place.env_args, **env_args})
    if is_uri(env_id):
        return _load_uri(env_id, env_args)
    package = find_here(env_id)
    logger.debug("Loading environment %r from %s", env_id, package.module.path)
    with _importing, _explained(env_id, package, "cannot be imported"):
        module = import_source(env_id, package.module)
    function = _load_function(env_id, module, env_args)
    with _explained(env_id, package, "cannot be loaded"):
        env = function(**env_args)
    if not isinstance(env, Environment):
        hint = ALIAS_HINT if type(env).__module__.partition(".")[0] == ALIASED else ""
        raise EnvironmentLoadError(
            env_id, f"cannot be loaded: load_environment() returned {type(env).__name__}, not an Environment{hint}"
        )
    env.env_id = env.env_id or EnvironmentId.parse(env_id).without_version
    env.env_args = env.env_args or env_args
    return env


def import_source(env_id: str, source: ModuleSource) -> ModuleType:
    """Imports the module of an environment: the only place where an environment's code is read in.

    The file that was found is imported, whatever else ``sys.path`` has of this name; its folder comes last in
    ``sys.path``, so that modules beside it are found and hide none.
    """
    install_where_needed()
    nemo_aliases.install_where_needed()
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
        raise ImportError(f"{path} is no Python file")
    module = sys.modules[source.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(source.name, None)
        raise
    return module


@contextmanager
def _explained(env_id: str, package: EnvironmentPackage, what_failed: str) -> Iterator[None]:
    """Turns what the environment's code raises into an error that names the environment."""
    try:
        yield
    except (MissingKeyError, EnvironmentLoadError):
        raise
    except ImportError as error:
        raise EnvironmentImportError(env_id, *_missing(error, package)) from error
    except NightjarError as error:
        raise EnvironmentLoadError(env_id, f"{what_failed}: {error}") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}{_place(error, package.module)}"
        raise EnvironmentLoadError(env_id, f"{what_failed}: {reason}") from error


def _missing(error: ImportError, package: EnvironmentPackage) -> tuple[str, str]:
    """Returns what is missing, and what to do about it where the error does not say it itself."""
    if "pip install" in str(error):
        return str(error), ""
    what = ""
    if package.origin == "local" and package.project is not None:
        what = f"Install what it needs: nightjar env install {package.project.path.parent}"
    elif isinstance(error, ModuleNotFoundError) and error.name:
        what = f"Install what it needs: pip install {error.name.partition('.')[0]}"
    return f"{type(error).__name__}: {error}{_place(error, package.module)}", what


def _place(error: BaseException, source: ModuleSource) -> str:
    """Names the last line of the environment's own code that the error came from; empty where there is none."""
    path = source.path.resolve()
    lines = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if path == Path(frame.filename) or (source.is_package and path.parent in Path(frame.filename).parents)
    ]
    return f" ({lines[-1][0].name}, line {lines[-1][1]})" if lines else ""


def _load_function(env_id: str, module: ModuleType, env_args: dict[str, Any]) -> Callable[..., Any]:
    """Returns a module's ``load_environment``, or what makes a benchmark of it; it has to take these arguments."""
    function: Any = getattr(module, "load_environment", None)
    if function is None and (found := registered_in(Path(module.__file__ or ""))):
        return _load_benchmark(_chosen(env_id, found, env_args.pop("benchmark", None)))
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


def _chosen(env_id: str, found: list[Registered], name: str | None) -> Registered:
    """Returns the benchmark of a file that is meant: that of the name, or the only one."""
    wanted = (name or EnvironmentId.parse(env_id).name).lower()
    spellings = {wanted, module_of(wanted), listed_name(wanted)}
    named = [each for each in found if each.name in spellings]
    names = ", ".join(each.name for each in found)
    if name and not named:
        raise EnvironmentLoadError(env_id, f"has no benchmark {name!r}. Choose one of: {names}")
    if len(found) > 1 and not named:
        raise EnvironmentLoadError(env_id, f"is one of several in {found[0].file}: {names}. Name one: FILE.py:NAME")
    return (named or found)[0]


def _load_uri(uri: str, env_args: dict[str, Any]) -> Environment:
    env = _as_environment(partial(benchmark_of_uri, uri), env_args)
    env.env_id, env.env_args = uri, env_args
    return env


def _load_benchmark(registered: Registered) -> Callable[..., Environment]:
    """Returns what makes an environment of a benchmark."""
    return lambda **env_args: _as_environment(registered.make, env_args)


def _as_environment(make: Callable[..., EvalEnvironment], env_args: dict[str, Any]) -> Environment:
    """Makes a benchmark, as an environment; ``judge_…`` are for its judge, the rest is for itself."""
    of_judge = inspect.signature(as_environment).parameters
    own = {name: value for name, value in env_args.items() if name not in of_judge}
    judge = {name: value for name, value in env_args.items() if name in of_judge}
    return as_environment(make(**own), **judge)
