"""Where the module of an environment is in its folder.

::

    my_env/my_env.py              a module; ``nightjar env init`` makes this one
    my_env/my_env/__init__.py     a package; ``nightjar env init --multi-file``
    my_env/src/my_env.py          either of them in ``src``
    my_env/__init__.py            the folder is the package
    my_env.py                     a file alone

A module has a ``load_environment``; or it defines benchmarks with ``@benchmark`` or ``@register``, as those of NeMo
Evaluator do (``nightjar.envs.seeded``).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from nightjar.syntax import parse_python

FUNCTION = "load_environment"
_DECORATORS = frozenset({"benchmark", "register"})
_HAVE_DECORATORS = ("nightjar.nemo", "nightjar.envs.seeded", "nemo_evaluator")


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """The source of a module: its name as it is imported, its file, and the folder that it is imported from."""

    name: str
    path: Path
    root: Path

    @property
    def is_package(self) -> bool:
        """Says whether it is a package folder."""
        return self.path.name == "__init__.py"


def find_module(folder: Path, name: str) -> ModuleSource | None:
    """Returns the module of a name in a project folder; None where no layout fits."""
    for root in (folder, folder / "src"):
        for path in (root / f"{name}.py", root / name / "__init__.py"):
            if path.is_file():
                return ModuleSource(name, path, root)
    if folder.name == name and (folder / "__init__.py").is_file():
        return ModuleSource(name, folder / "__init__.py", folder.parent)
    return None


def defines_environment(path: Path) -> bool:
    """Says, without running it, whether a module has an environment or benchmark. What cannot be parsed counts."""
    tree = parse_module(path)
    return tree is None or any(_binds(statement) for statement in tree.body) or bool(_benchmarks(tree))


def benchmark_names(path: Path) -> list[str]:
    """Returns, without running it, what the benchmarks of a module are called, as far as it says that with a text.

    None of them where it has a ``load_environment``.
    """
    tree = parse_module(path)
    if tree is None or any(_binds(statement) for statement in tree.body):
        return []
    return [name for name in _benchmarks(tree) if name]


def first_line_of_docstring(path: Path) -> str:
    """Returns what a module says of itself; empty where it says nothing."""
    tree = parse_module(path)
    docstring = ast.get_docstring(tree) if tree else None
    return docstring.partition("\n")[0] if docstring else ""


def parse_module(path: Path) -> ast.Module | None:
    """Returns what a file says, as a tree; None where it cannot be read, or is not Python."""
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
    """Returns the names that decorators give; an empty one where it is no plain text."""
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
