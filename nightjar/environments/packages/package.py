"""A package: the module of an environment and its ``pyproject.toml``, read without running any code.

These layouts are recognised::

    my_env/my_env.py              a module, as made by ``nightjar env init``
    my_env/my_env/__init__.py     a package, as made by ``nightjar env init --multi-file``
    my_env/src/my_env.py          either of these layouts in ``src``
    my_env/__init__.py            the folder is the package
    my_env.py                     a single file

A module has a ``load_environment``, or benchmarks with NeMo Evaluator's decorators ``@benchmark`` or ``@register``.
"""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from packaging.utils import canonicalize_name

from nightjar.core.syntax import parse_python
from nightjar.errors import EnvironmentPackageError

FUNCTION = "load_environment"
_DECORATORS = frozenset({"benchmark", "register"})
_HAVE_DECORATORS = ("nightjar.compat.nemo", "nightjar.environments.seeded", "nemo_evaluator")
PYPROJECT = "pyproject.toml"
Origin: TypeAlias = Literal["local", "installed", "built-in"]


@dataclass(frozen=True, slots=True)
class ModuleSource:
    name: str
    path: Path
    root: Path

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def find_module(folder: Path, name: str) -> ModuleSource | None:
    for root in (folder, folder / "src"):
        for path in (root / f"{name}.py", root / name / "__init__.py"):
            if path.is_file():
                return ModuleSource(name, path, root)
    if folder.name == name and (folder / "__init__.py").is_file():
        return ModuleSource(name, folder / "__init__.py", folder.parent)
    return None


def defines_environment(path: Path) -> bool:
    """Returns whether a module defines an environment or benchmark; True for a module that cannot be parsed."""
    tree = parse_module(path)
    return tree is None or any(_binds(statement) for statement in tree.body) or bool(_benchmarks(tree))


def benchmark_names(path: Path) -> list[str]:
    """Returns the literal names of a module's benchmarks; empty if it has a ``load_environment``."""
    tree = parse_module(path)
    if tree is None or any(_binds(statement) for statement in tree.body):
        return []
    return [name for name in _benchmarks(tree) if name]


def first_line_of_docstring(path: Path) -> str:
    tree = parse_module(path)
    docstring = ast.get_docstring(tree) if tree else None
    return docstring.partition("\n")[0] if docstring else ""


def parse_module(path: Path) -> ast.Module | None:
    try:
        return parse_python(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _binds(statement: ast.stmt) -> bool:
    match statement:
        case ast.FunctionDef(name=name):
            return name == FUNCTION
        case ast.ImportFrom(names=names):
            return any((alias.asname or alias.name) in {FUNCTION, "*"} for alias in names)
        case ast.Assign(targets=targets):
            return any(isinstance(target, ast.Name) and target.id == FUNCTION for target in targets)
        case ast.If(body=body, orelse=otherwise) | ast.Try(body=body, orelse=otherwise):
            return any(_binds(inner) for inner in [*body, *otherwise])
    return False


def _benchmarks(tree: ast.Module) -> list[str]:
    """Returns the names given to decorators; ``""`` for a name that is not a literal."""
    if not any(_imports_decorators(statement) for statement in tree.body):
        return []
    calls = [
        decorator
        for statement in ast.walk(tree)
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in statement.decorator_list
        if isinstance(decorator, ast.Call)
    ]
    return [_name_given(call) for call in calls if ast.unparse(call.func).rpartition(".")[2] in _DECORATORS]


def _imports_decorators(statement: ast.stmt) -> bool:
    match statement:
        case ast.ImportFrom(module=str(name)):
            return f"{name}.".startswith(tuple(f"{root}." for root in _HAVE_DECORATORS))
        case ast.Import(names=names):
            return any(f"{alias.name}.".startswith(tuple(f"{r}." for r in _HAVE_DECORATORS)) for alias in names)
    return False


def _name_given(call: ast.Call) -> str:
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "name")]
    texts = [value.value for value in given if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return texts[0] if texts else ""


@dataclass(frozen=True, slots=True)
class Project:
    """The content of a ``pyproject.toml``; the version is None if the build computes it."""

    path: Path
    name: str | None = None
    version: str | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    tool: dict[str, Any] = field(default_factory=dict)

    def is_of(self, distribution: str) -> bool:
        """Returns whether the project has a distribution's name, in any spelling. A project without a name fits all."""
        return self.name is None or canonicalize_name(self.name) == canonicalize_name(distribution)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPackage:
    env_id: str
    origin: Origin
    module: ModuleSource
    version: str | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    project: Project | None = None
    distribution: str | None = None
    installed_version: str | None = None
    editable_from: Path | None = None

    @property
    def location(self) -> str:
        match self.origin:
            case "built-in":
                return "built-in"
            case "local":
                return str(self.project.path.parent if self.project else self.module.path)
            case "installed":
                return f"installed, editable from {self.editable_from}" if self.editable_from else "installed"


def read_project(folder: Path) -> Project | None:
    path = folder / PYPROJECT
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentPackageError(f"Cannot read {path}: {error}") from error
    return parse_project(text, path)


def parse_project(text: str, path: Path) -> Project:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentPackageError(f"{path} is not valid TOML: {error}") from error
    project = _table(content, "project", path)
    return Project(
        path=path,
        name=_text(project, "name", path),
        version=_text(project, "version", path),
        description=_text(project, "description", path) or "",
        tags=tuple(str(tag) for tag in project.get("tags") or project.get("keywords") or ()),
        dependencies=tuple(str(text) for text in project.get("dependencies") or ()),
        tool=_table(content, "tool", path),
    )


def _table(content: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise EnvironmentPackageError(f"{path}: {key} must be a table, found {value!r}")
    return value


def _text(project: dict[str, Any], key: str, path: Path) -> str | None:
    value = project.get(key)
    if value is not None and not isinstance(value, str):
        raise EnvironmentPackageError(f"{path}: project.{key} must be a text, found {value!r}")
    return value
