"""``Finding``: something in a warehouse that is not as it should be, and what mends it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nightjar.warehouse.storage.folder import Folder

FIX = "doctor --fix"
FIX_DEEP = "doctor --fix --deep"
DEEP = "doctor --deep"
COMPACT = "compact"

_MOST_NAMED = 10
"""How many run directories a command names; where there are more, the folder that all are in."""


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        what: what it is, and where.
        remedy: the command, or what else, that mends it.
        needs_action: False where it does no harm, or goes away by itself.
        runs: the runs that it concerns, where it concerns some.
    """

    what: str
    remedy: str
    needs_action: bool = True
    runs: tuple[str, ...] = ()


def number(count: int, noun: str) -> str:
    """Returns a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def publish_command(folder: Folder, run_dirs: Sequence[str]) -> str:
    """Returns the line to type that publishes runs anew; in it, RUN_DIR stands for what is not known here."""
    if len(run_dirs) == 1:
        return f"nightjar publish {shlex.quote(run_dirs[0])} --warehouse {shlex.quote(str(folder.path))}"
    return folder.command(f"import {_places(run_dirs, 'RUN_DIR…')}")


def rebuild_command(folder: Folder, run_dirs: Sequence[str]) -> str:
    """Returns the line to type that makes runs anew from their run directories; other runs stay as they are."""
    return folder.command(f"rebuild {_places(run_dirs, 'FOLDER…')}")


def known_here(run_dirs: Iterable[str | None]) -> list[str]:
    """Returns the run directories that are on this machine, in order."""
    return sorted({path for path in run_dirs if path and (Path(path) / "metadata.json").is_file()})


def _places(run_dirs: Sequence[str], unknown: str) -> str:
    named = run_dirs if len(run_dirs) <= _MOST_NAMED else sorted({str(Path(path).parent) for path in run_dirs})
    return " ".join(map(shlex.quote, named)) or unknown
