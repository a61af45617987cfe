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
"""Where environments are developed, unless somebody says otherwise."""
LATEST = "latest"
_NOT_IN_FOLDERS = re.compile(r"[^\w.]+")
_LONGEST_FOLDER = 80
_NEW_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class EnvironmentId:
    """What an environment is asked for by; as a text it is what was typed.

    Attributes:
        text: as it was typed.
        name: without owner and version; a run's folder is named by it.
        owner: None where none is named.
        version: the version asked for; None for any, also where ``latest`` is asked for.
        asks_for_latest: whether the version is ``latest``.

    Example:
        >>> asked = EnvironmentId.parse("ada/my_env@1.2")
        >>> asked.owner, asked.name, asked.version, asked.module, asked.listed, asked.without_version
        ('ada', 'my_env', '1.2', 'my_env', 'my-env', 'ada/my_env')
    """

    text: str
    name: str
    owner: str | None = None
    version: str | None = None
    asks_for_latest: bool = False

    @classmethod
    def parse(cls, text: str) -> EnvironmentId:
        """Takes a name apart. Anything is accepted: a name that no module can have is one that is not found.

        A URI, ``gym://localhost:9090``, has no owner and no version; its name is what folders can be called.
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
        """The module that holds its ``load_environment``."""
        return module_of(self.name)

    @property
    def listed(self) -> str:
        """The name under which it is listed: with dashes, however it was typed."""
        return listed_name(self.name)

    @property
    def without_version(self) -> str:
        """``owner/name``, or the name alone; a URI as it is."""
        if is_uri(self.text):
            return self.text
        return f"{self.owner}/{self.name}" if self.owner else self.name


def is_uri(text: str) -> bool:
    """Says whether a benchmark is named by a URI, and not by the name of an environment.

    Example:
        >>> is_uri("gym://localhost:9090"), is_uri("owner/my-env")
        (True, False)
    """
    return "://" in text


def module_of(name: str) -> str:
    """Returns the name of the module of an environment, or of a distribution."""
    return name.replace("-", "_")


def listed_name(module: str) -> str:
    """Returns the name under which the environment of a module is listed."""
    return module.replace("_", "-")


def check_new_name(text: str, environments_dir: Path) -> EnvironmentId:
    """Returns the name of an environment that is about to be made, with dashes for underscores.

    Raises:
        EnvironmentPackageError: no package can have the name, or it would hide, or be hidden by, another module.
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
        return "a word of the language Python"
    if module in sys.stdlib_module_names:
        return "a module of Python's standard library"
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or Path(spec.origin).is_relative_to(folder.resolve()):
        return None
    return f"an installed module, {spec.origin}"
