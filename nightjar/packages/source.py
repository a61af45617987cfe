"""The files that an environment is made of: their hash stands in the record of a run, and they can be sent elsewhere.

A project or package is its whole folder, but for tests and what tools have made; a file alone is the file, with the
modules beside it that it imports.
"""

from __future__ import annotations

import ast
import io
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from hashlib import file_digest, sha256
from pathlib import Path

from nightjar.errors import EnvironmentPackageError
from nightjar.packages.layouts import parse_module
from nightjar.packages.names import listed_name
from nightjar.packages.package import EnvironmentPackage

_LEFT_OUT = (".*", "*.pyc", "*.egg-info", "__pycache__", "build", "dist", "node_modules", "outputs", "venv")
_LEFT_OUT_ON_TOP = (*_LEFT_OUT, "tests", "test_*.py", "conftest.py", "README.md", "CHANGELOG.md", "LICENSE")
_MOST_BYTES = 50_000_000


def source_files(package: EnvironmentPackage) -> dict[str, Path]:
    """Returns the files of an environment, by the names that they have in a folder of environments.

    Example:
        >>> from nightjar.packages import find_environment
        >>> [*source_files(find_environment("arithmetic"))]
        ['arithmetic.py']
    """
    module = package.module
    folder = _folder(package)
    if folder is not None:
        name = module.name.rpartition(".")[2]
        return {f"{name}/{path.relative_to(folder).as_posix()}": path for path in _files_below(folder)}
    files = [module.path, *(_imported_beside(module.path) if package.origin == "local" else ())]
    return {path.relative_to(module.path.parent).as_posix(): path for path in files}


def source_hash(files: Mapping[str, Path]) -> str:
    """Returns the SHA-256 of files, of their names and their content, as hexadecimal digits."""
    digest = sha256()
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            digest.update(f"{name}\0{file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def pack(files: Mapping[str, Path]) -> bytes:
    """Returns files as a ZIP archive.

    Raises:
        EnvironmentPackageError: there is more than an environment should have.
    """
    size = sum(path.stat().st_size for path in files.values())
    if size > _MOST_BYTES:
        largest = max(files, key=lambda name: files[name].stat().st_size)
        raise EnvironmentPackageError(
            f"The environment has {size / 1e6:,.0f} MB of files, {largest} above all; {_MOST_BYTES / 1e6:.0f} MB can "
            "be sent. Put data on a hub or a shared disk, and name it with an argument of the environment"
        )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, path in sorted(files.items()):
            zipped.writestr(name, path.read_bytes())
    return archive.getvalue()


def _folder(package: EnvironmentPackage) -> Path | None:
    """Returns the folder that is an environment as a whole; None where it is a file alone."""
    module = package.module
    if package.origin == "local" and package.project is not None:
        return package.project.path.parent
    if package.origin == "installed" and package.editable_from is not None:
        return package.editable_from
    if module.is_package:
        return module.path.parent
    folder = module.root.parent if module.root.name == "src" else module.root
    is_own = package.origin == "local" and folder.absolute().name in {module.name, listed_name(module.name)}
    return folder if is_own else None


def _files_below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        left_out = _LEFT_OUT_ON_TOP if Path(place) == folder else _LEFT_OUT
        folders[:] = sorted(name for name in folders if not _is_any(name, left_out))
        yield from (Path(place, name) for name in sorted(names) if not _is_any(name, left_out))


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _imported_beside(path: Path) -> list[Path]:
    """Returns the files beside a module that it imports, and those that they import."""
    folder, found, unread = path.parent, list[Path](), [path]
    while unread:
        for name in _imported_names(unread.pop()):
            beside, package = folder / f"{name}.py", folder / name
            files = [beside] if beside.is_file() else []
            if (package / "__init__.py").is_file():
                files = [*_files_below(package)]
            new = [file for file in files if file not in found and file != path]
            found += new
            unread += [file for file in new if file.suffix == ".py"]
    return found


def _imported_names(path: Path) -> Iterator[str]:
    """Yields the top-level names of the modules that a file imports."""
    for node in ast.walk(parse_module(path) or ast.Module([], [])):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name.partition(".")[0]
