"""Names of environments: ``my-env``, ``owner/my-env``, ``owner/my-env@1.2``."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from nightjar.errors import EnvironmentPackageError

ENVIRONMENTS_DIR = Path("environments")
LATEST = "latest"
INSPECT = "inspect://"
"""The scheme of tasks of Inspect."""
_FILE_OF_TASK = re.compile(INSPECT + r"(?P<path>.+\.py)(?:@[^@/]+)?")
_NOT_IN_FOLDERS = re.compile(r"[^\w.]+")
_LONGEST_FOLDER = 80
_NEW_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class EnvironmentId:
    """The name of an environment as the user typed it, and the parts of the name.

    For ``latest``, ``version`` is None.
    """

    text: str
    name: str
    owner: str | None = None
    version: str | None = None
    asks_for_latest: bool = False

    @classmethod
    def parse(cls, text: str) -> EnvironmentId:
        """Parses any text.

        A URI such as ``gym://localhost:9090`` has no owner and no version, but a valid folder name.
        """
        if is_uri(text):
            return cls(text, _NOT_IN_FOLDERS.sub("-", text)[:_LONGEST_FOLDER].strip("-"))
        owner, _, rest = text.rpartition("/")
        name, _, version = rest.partition("@")
        is_latest = version == LATEST
        return cls(text, name, owner or None, None if is_latest else version or None, is_latest)

    def __str__(self) -> str:
        return self.text

    @property
    def module(self) -> str:
        return module_of(self.name)

    @property
    def listed(self) -> str:
        return listed_name(self.name)

    @property
    def without_version(self) -> str:
        if is_uri(self.text):
            return self.text
        return f"{self.owner}/{self.name}" if self.owner else self.name


def is_uri(text: str) -> bool:
    return "://" in text


def file_of_task(text: str) -> Path | None:
    """Returns the file of a task of Inspect, such as ``inspect://FILE.py@task``; None for any other text.

    Example:
        >>> file_of_task("inspect://evals/sums.py@sums?difficulty=3")
        PosixPath('evals/sums.py')
    """
    found = _FILE_OF_TASK.fullmatch(text.partition("?")[0])
    return Path(found["path"]) if found else None


def module_of(name: str) -> str:
    return name.replace("-", "_")


def listed_name(module: str) -> str:
    return module.replace("_", "-")


def check_new_name(text: str, environments_dir: Path) -> EnvironmentId:
    """Returns the name of a new environment, with dashes.

    Raises ``EnvironmentPackageError`` for a bad or taken name.
    """
    asked = EnvironmentId.parse(text)
    if asked.version or asked.asks_for_latest or not _NEW_NAME.fullmatch(asked.name):
        raise EnvironmentPackageError(
            f"{text!r} cannot be the name of an environment. A name has lower-case letters, digits and dashes, "
            "and starts with a letter: my-env or owner/my-env"
        )
    if reason := _taken(asked.module, environments_dir / asked.module):
        raise EnvironmentPackageError(f"The name {text!r} is taken: {asked.module!r} is {reason}. Try {asked.name}-env")
    return EnvironmentId(text, asked.listed, asked.owner)


def _taken(module: str, folder: Path) -> str | None:
    if keyword.iskeyword(module):
        return "a Python keyword"
    if module in sys.stdlib_module_names:
        return "a module of Python's standard library"
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or Path(spec.origin).is_relative_to(folder.resolve()):
        return None
    return f"an installed module, {spec.origin}"
