"""Loads a task of Inspect, once for the defaults of a run and for the run itself."""

from __future__ import annotations

import ast
import json
import logging
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inspect_ai import Task
from inspect_ai._eval.loader import load_tasks
from inspect_ai._util.decorator import parse_decorators
from inspect_ai._util.registry import registry_info, registry_lookup
from inspect_ai.scorer._reducer import reducer_log_name

from nightjar.core.environment_id import INSPECT
from nightjar.environments.inspect_tasks.address import TaskAddress
from nightjar.errors import EnvironmentImportError, EnvironmentLoadError

logger = logging.getLogger(__name__)

OWN_ARGUMENTS = frozenset({"judge_model", "judge_base_url", "judge_api_key_var", "docker_image", "max_sandboxes"})
"""Arguments of the environment. All others are arguments of the task."""
_loaded: dict[str, Task] = {}
"""A task that was loaded to read its defaults, until the run takes it. The key has its address and arguments."""


def epochs_of(address: TaskAddress, env_args: dict[str, Any]) -> int:
    args = {name: value for name, value in env_args.items() if name not in OWN_ARGUMENTS}
    task = load_task(address, args)
    _loaded.clear()
    _loaded[_key(address, args)] = task
    return task.epochs or 1


def load_task(address: TaskAddress, args: dict[str, Any]) -> Task:
    """Loads a task with its arguments.

    Raises:
        EnvironmentLoadError: the file or the task does not exist, fails, or does not take the arguments.
        EnvironmentImportError: a package that the task imports is missing.
    """
    if (known := _loaded.pop(_key(address, args), None)) is not None:
        return known
    name, given = f"{INSPECT}{address.spec}", {**address.args, **args}
    try:
        spec = address.spec if address.file is None else _task_in(name, address.file, address.spec)
        found = load_tasks([spec], given)
    except EnvironmentLoadError:
        raise
    except ModuleNotFoundError as error:
        hint = f"Install what it needs: pip install {(error.name or '').partition('.')[0]}"
        raise EnvironmentImportError(name, f"{type(error).__name__}: {error}", hint) from error
    except (Exception, SystemExit) as error:
        raise EnvironmentLoadError(name, f"cannot be loaded: {_reason(error)}") from error
    if not found:
        raise EnvironmentLoadError(name, "cannot be loaded: Inspect finds no such task")
    _check_arguments(name, found[0], given)
    return found[0]


def reducer_names(task: Task) -> list[str]:
    return [reducer_log_name(reducer) for reducer in task.epochs_reducer or []]


def _task_in(name: str, file: Path, spec: str) -> str:
    """Returns the task of a file as Inspect names it: the named task, or the only one."""
    if not file.is_file():
        raise EnvironmentLoadError(name, f"cannot be loaded: there is no file {str(file)!r}")
    named = spec.removeprefix(str(file)).removeprefix("@")
    try:
        tree = ast.parse(file.read_bytes(), str(file))
        known = [found[0] for found in parse_decorators(file, "task")]
        if not known:
            _check_imports(tree, file.parent)
    except (SyntaxError, ValueError) as error:
        raise EnvironmentLoadError(name, f"cannot be loaded: {_reason(error)}") from error
    if named not in known and (named or len(known) != 1):
        listed = ", ".join(f"{INSPECT}{file}@{each}" for each in known)
        missing = f"has no task {named!r}" if named else "names none of its tasks"
        raise EnvironmentLoadError(name, f"{missing}. Choose one of: {listed}" if known else f"has no task: {file}")
    return f"{file}@{named or known[0]}"


def _check_imports(tree: ast.Module, folder: Path) -> None:
    """Raises ``ModuleNotFoundError`` for a missing module, without running the file: it may not be a file of tasks."""
    for node in tree.body:
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        for module in (name.partition(".")[0] for name in names):
            if not (find_spec(module) or PathFinder.find_spec(module, [str(folder)])):
                raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def _check_arguments(name: str, task: Task, given: dict[str, Any]) -> None:
    known = registry_info(registry_lookup("task", registry_info(task).name)).metadata["params"]
    if unknown := sorted(given.keys() - {*known}):
        takes = ", ".join(sorted({*known} | OWN_ARGUMENTS))
        raise EnvironmentLoadError(name, f"does not take the argument {unknown[0]!r}. It takes: {takes}")


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _key(address: TaskAddress, args: dict[str, Any]) -> str:
    changed = address.file.stat().st_mtime_ns if address.file is not None and address.file.is_file() else 0
    return json.dumps([address.spec, str(Path.cwd()), changed, {**address.args, **args}], sort_keys=True, default=str)
