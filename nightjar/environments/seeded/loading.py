"""Makes environments of the benchmarks that a file registers, or that a URI names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from nightjar.core.environment_id import EnvironmentId, listed_name, module_of
from nightjar.environments.environment import Environment
from nightjar.environments.seeded.bridge import as_environment
from nightjar.environments.seeded.eval_environment import EvalEnvironment
from nightjar.environments.seeded.registry import Registered, benchmark_of_uri, registered_in
from nightjar.errors import EnvironmentLoadError


def environment_of_uri(uri: str, env_args: dict[str, Any]) -> Environment:
    return _as_environment(partial(benchmark_of_uri, uri), env_args)


def benchmark_in(module: ModuleType, env_id: str, env_args: dict[str, Any]) -> Callable[..., Environment] | None:
    """Returns a function that makes the benchmark of a module, or None if the module has none.

    Takes the name of the benchmark out of the arguments.
    """
    found = registered_in(Path(module.__file__ or ""))
    if not found:
        return None
    benchmark = _select_benchmark(env_id, found, env_args.pop("benchmark", None))
    return lambda **own: _as_environment(benchmark.make, own)


def _select_benchmark(env_id: str, found: list[Registered], name: str | None) -> Registered:
    wanted = (name or EnvironmentId.parse(env_id).name).lower()
    spellings = {wanted, module_of(wanted), listed_name(wanted)}
    named = [each for each in found if each.name in spellings]
    names = ", ".join(each.name for each in found)
    if name and not named:
        raise EnvironmentLoadError(env_id, f"has no benchmark {name!r}. Choose one of: {names}")
    if len(found) > 1 and not named:
        raise EnvironmentLoadError(env_id, f"is ambiguous: {found[0].file} has {names}. Choose one: FILE.py:NAME")
    return (named or found)[0]


def _as_environment(make: Callable[..., EvalEnvironment], env_args: dict[str, Any]) -> Environment:
    """Creates a benchmark and wraps it as an environment; ``judge_…`` arguments go to the benchmark's judge."""
    of_judge = inspect.signature(as_environment).parameters
    own = {name: value for name, value in env_args.items() if name not in of_judge}
    judge = {name: value for name, value in env_args.items() if name in of_judge}
    return as_environment(make(**own), **judge)
