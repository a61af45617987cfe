"""Python packages of this machine that a local sandbox shows, one by one.

A sandbox has no network, so nothing can be installed in it. What is installed here is shown instead, read-only: the
distributions that were asked for and what they need, and nothing else. The rest of ``site-packages`` may hold the
answers of an environment.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True, slots=True)
class ShownPackages:
    """The files and directories to show, by the name to show them under, and what is not installed as asked for."""

    paths: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


@functools.lru_cache(maxsize=64)
def find_packages(requirements: tuple[str, ...]) -> ShownPackages:
    """Finds installed distributions, by names with or without versions as pip takes them, and all that they need."""
    found = ShownPackages()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(text, True) for text in requirements]
    while waiting:
        text, is_asked_for = waiting.pop()
        installed, requirement = _installed(text)
        if installed is None:
            found.missing.extend([text] if is_asked_for else [])
            continue
        wanted = (canonicalize_name(installed.metadata["Name"]), frozenset(requirement.extras))
        if wanted not in seen:
            seen.add(wanted)
            found.paths.update(_top_level(installed))
            waiting += [(needed, False) for needed in _needs(installed, requirement.extras)]
    found.paths.pop("__pycache__", None)
    return found


def _installed(text: str) -> tuple[Distribution | None, Requirement]:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None, Requirement("unknown")
    try:
        installed = distribution(requirement.name)
    except PackageNotFoundError:
        return None, requirement
    fits = requirement.specifier.contains(installed.version, prereleases=True)
    return (installed if fits and _top_level(installed) else None), requirement


def _needs(installed: Distribution, extras: set[str]) -> list[str]:
    needed = []
    for text in installed.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            needed.append(str(Requirement(text.partition(";")[0])))
    return needed


def _top_level(installed: Distribution) -> dict[str, Path]:
    """Returns the first parts of a distribution's files; nothing where its code is elsewhere (an editable install).

    A distribution may have no code: it stands for those that it needs, or brings a program.
    """
    names = {file.parts[0] for file in installed.files or [] if file.parts and file.parts[0] not in {"..", "/"}}
    has_code = any(not name.endswith((".dist-info", ".egg-info", ".pth")) for name in names)
    if not has_code and any(name.endswith(".pth") for name in names):
        return {}
    paths = {name: Path(str(installed.locate_file(name))) for name in names if not name.endswith(".pth")}
    return {name: path for name, path in paths.items() if path.exists()}
