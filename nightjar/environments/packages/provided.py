"""Hashes the files of an environment for a run's record, sends files to workers, or installs them there for one run.

The files are the environment's whole folder without tests and generated files, or a single file and the neighbouring
modules that it imports. Sent or installed files are in a folder of Nightjar's home that may be deleted after the run.
"""

from __future__ import annotations

import ast
import importlib
import io
import logging
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from hashlib import file_digest, sha256
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory

from nightjar.core.environment_id import EnvironmentId, listed_name
from nightjar.core.files import file_lock
from nightjar.core.home import home
from nightjar.environments.packages.catalog import find_environment, local_package
from nightjar.environments.packages.installation import InstallOptions, Target, find_target, is_missing, run_installer
from nightjar.environments.packages.package import EnvironmentPackage, parse_module
from nightjar.errors import EnvironmentNotFoundError, EnvironmentPackageError, EnvironmentVersionError

logger = logging.getLogger(__name__)

_LEFT_OUT = (".*", "*.pyc", "*.egg-info", "__pycache__", "build", "dist", "node_modules", "outputs", "venv")
_LEFT_OUT_ON_TOP = (*_LEFT_OUT, "tests", "test_*.py", "conftest.py", "README.md", "CHANGELOG.md", "LICENSE")
_MOST_BYTES = 50_000_000
SENT = "sha256:"
"""Prefix of the source of a sent environment; the hash of its files follows."""
_GIT = re.compile(r"git\+(?P<url>\w+://[^#]*?)(?:@(?P<revision>[^@#:]+))?(?P<rest>#.*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_GIT_SECONDS = 60.0
_NO_ENVIRONMENTS = Path(os.devnull)
"""An empty folder of environments, so that no local environment hides an installed environment."""
_OPTIONS = InstallOptions(editable=False)


def source_files(package: EnvironmentPackage) -> dict[str, Path]:
    """Returns the files of an environment by their paths relative to a folder of environments."""
    module = package.module
    folder = _own_folder(package)
    if folder is not None:
        name = module.name.rpartition(".")[2]
        return {f"{name}/{path.relative_to(folder).as_posix()}": path for path in _files_below(folder)}
    files = [module.path, *(_imported_beside(module.path) if package.origin == "local" else ())]
    return {path.relative_to(module.path.parent).as_posix(): path for path in files}


def source_hash(files: Mapping[str, Path]) -> str:
    digest = sha256()
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            digest.update(f"{name}\0{file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def pack(files: Mapping[str, Path]) -> bytes:
    size = sum(path.stat().st_size for path in files.values())
    if size > _MOST_BYTES:
        largest = max(files, key=lambda name: files[name].stat().st_size)
        raise EnvironmentPackageError(
            f"The environment has {size / 1e6:,.0f} MB of files; the largest is {largest}. At most "
            f"{_MOST_BYTES / 1e6:.0f} MB can be sent. Put data on a hub or a shared disk, and pass its place to the "
            "environment as an argument"
        )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, path in sorted(files.items()):
            zipped.writestr(name, path.read_bytes())
    return archive.getvalue()


def _own_folder(package: EnvironmentPackage) -> Path | None:
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
    for node in ast.walk(parse_module(path) or ast.Module([], [])):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name.partition(".")[0]


def provide(env_id: str, source: str, environments_dir: Path) -> Path:
    """Makes an environment available to this process, and returns the folder of environments to use.

    ``source`` is ``sha256:…`` for files that were sent to this machine, ``owner/name@version``, the URL of a repository
    or wheel, or empty for an environment that is found by its name.
    """
    if source.startswith(SENT):
        return _folder_of_sent(source)
    wanted = source or _to_install(env_id, environments_dir)
    if not wanted:
        return environments_dir
    target, identity = _pinned(wanted)
    if "://" in identity or target.path is not None or is_missing(identity):
        _import_first_from(_created_once(_folder_name([identity]), partial(_install, [target])))
    return _NO_ENVIRONMENTS


def has_sent(source: str) -> bool:
    return _folder(source.removeprefix(SENT)).is_dir()


def keep_sent(source: str, archive: bytes) -> None:
    _created_once(source.removeprefix(SENT), partial(_unpack, archive, source))


def _folder_of_sent(source: str) -> Path:
    folder = _folder(source.removeprefix(SENT))
    if not folder.is_dir():
        raise EnvironmentPackageError(
            f"Environment {source} was not sent to this machine. Run it from its folder, with --hosted"
        )
    packages = filter(None, map(local_package, folder.iterdir()))
    projects = filter(None, (package.project for package in packages))
    if wanted := [text for project in projects for text in project.dependencies if is_missing(text)]:
        _import_first_from(_created_once(_folder_name(wanted), partial(_install_missing, wanted)))
    return folder


def _to_install(env_id: str, environments_dir: Path) -> str:
    asked = EnvironmentId.parse(env_id)
    if asked.owner is None or asked.version is None:
        return ""
    try:
        find_environment(env_id, environments_dir)
    except (EnvironmentNotFoundError, EnvironmentVersionError):
        return env_id
    return ""


def _pinned(source: str) -> tuple[Target, str]:
    if (git := _GIT.fullmatch(source)) is not None:
        requirement = f"git+{git['url']}@{_commit(git['url'], git['revision'] or 'HEAD')}{git['rest'] or ''}"
        return Target(source, requirement=requirement), requirement
    if "://" in source:
        return Target(source, requirement=source), source
    target = find_target(source, None)
    if target.path is None and "==" in str(target.requirement):
        return target, str(target.requirement)
    if target.path is not None and target.path.is_file():
        return target, sha256(target.path.read_bytes()).hexdigest()
    raise EnvironmentPackageError(
        f"{source!r} has no version. Use owner/name@1.2, a wheel, or git+https://host/repository@v1"
    )


def _commit(url: str, revision: str) -> str:
    if _COMMIT.fullmatch(revision):
        return revision
    command = ["git", "ls-remote", "--exit-code", "--", url, revision]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentPackageError(f"git cannot read {url!r}: {error}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it has no branch or tag {revision!r}"]
        raise EnvironmentPackageError(f"git cannot find {revision!r} in {url!r}: {said[-1]}")
    return done.stdout.split()[0]


def _folder_name(identities: Sequence[str]) -> str:
    """Returns the folder name of an installation, which depends on Python and the installed packages."""
    return sha256("\n".join([sys.version, *sorted(identities), *_constraints()]).encode()).hexdigest()


def _constraints() -> list[str]:
    """Returns constraints that keep the installed packages' versions."""
    here = {found.name: found.version for found in distributions() if found.name}
    return [f"{name}=={version}" for name, version in sorted(here.items())]


def _created_once(name: str, make: Callable[[Path], None]) -> Path:
    """Returns a folder of Nightjar's home that is created once, completely or not at all."""
    folder = _folder(name)
    folder.parent.mkdir(exist_ok=True)
    with file_lock(Path(f"{folder}.lock"), timeout_seconds=None):
        if not folder.is_dir():
            with TemporaryDirectory(dir=folder.parent) as temporary:
                new = Path(temporary, "new")
                new.mkdir()
                make(new)
                new.rename(folder)
    return folder


def _unpack(archive: bytes, source: str, folder: Path) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
            zipped.extractall(folder)
    except (zipfile.BadZipFile, OSError) as error:
        raise EnvironmentPackageError(f"Environment {source} cannot be unpacked: {error}") from error
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    if SENT + source_hash(files) != source:
        raise EnvironmentPackageError(f"The archive of environment {source} does not match its hash")


def _install(targets: Sequence[Target], folder: Path) -> None:
    logger.warning("Installing %s for this run only", ", ".join(target.asked for target in targets))
    run_installer(["--no-deps", "--target", str(folder)], targets, _OPTIONS)
    requires = [text for found in distributions(path=[str(folder)]) for text in found.requires or ()]
    _install_missing(list(filter(is_missing, requires)), folder)


def _install_missing(requirements: Sequence[str], folder: Path) -> None:
    if requirements:
        constraints = folder.with_name("constraints.txt")
        constraints.write_text("\n".join(_constraints()), encoding="utf-8")
        flags = ["--target", str(folder), "--constraint", str(constraints)]
        run_installer(flags, [Target(text, requirement=text) for text in requirements], _OPTIONS)


def _import_first_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()


def _folder(name: str) -> Path:
    return home() / "environments" / name
