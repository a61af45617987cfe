"""Where the module of an environment is in its folder.

::

    my_env/my_env.py              a module; ``nightjar env init`` makes this one
    my_env/my_env/__init__.py     a package; ``nightjar env init --multi-file``
    my_env/src/my_env.py          either of them in ``src``
    my_env/__init__.py            the folder is the package
    my_env.py                     a file alone
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

FUNCTION = "load_environment"


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
    """Says, without running it, whether a module has a ``load_environment``. One that cannot be parsed counts."""
    tree = parse_module(path)
    return tree is None or any(_binds(statement) for statement in tree.body)


def first_line_of_docstring(path: Path) -> str:
    """Returns what a module says of itself; empty where it says nothing."""
    tree = parse_module(path)
    docstring = ast.get_docstring(tree) if tree else None
    return docstring.partition("\n")[0] if docstring else ""


def parse_module(path: Path) -> ast.Module | None:
    """Returns what a file says, as a tree; None where it cannot be read, or is not Python."""
    try:
        return ast.parse(path.read_bytes())
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
