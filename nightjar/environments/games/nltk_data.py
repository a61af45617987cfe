"""Finds NLTK's data for games. ``nltk.download`` prints and needs a network, so it runs only for missing data."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nightjar.core.extras import import_extra
from nightjar.errors import DatasetError

logger = logging.getLogger(__name__)

DOWNLOAD_SECONDS = 120.0
WORDS = ("words", "averaged_perceptron_tagger_eng")
"""The data of TextArena's dictionary."""

_FOLDERS = ("corpora", "taggers", "tokenizers")
_SHARED = ("/usr/share", "/usr/local/share", "/usr/lib", "/usr/local/lib")
_DOWNLOAD = "import nltk, sys; nltk.download(sys.argv[1:], quiet=True)"


@dataclass(frozen=True)
class NltkData:
    names: tuple[str, ...] = WORDS
    license: str = "not stated"
    num_examples: int | None = None
    is_gated: bool = False

    def variants(self) -> list[NltkData]:
        return [self]

    def is_here(self) -> bool:
        return len(self.paths()) == len(self.names)

    def fetch(self) -> None:
        try:
            ensure_here(self.names)
        except ImportError as error:
            raise DatasetError(str(error)) from error

    def paths(self) -> list[Path]:
        """Returns the existing folders and archives. Does not import NLTK, because the import takes a second."""
        found = (next((place for place in _places(name) if place.exists()), None) for name in self.names)
        return [place for place in found if place is not None]


def ensure_here(names: Sequence[str]) -> None:
    if missing := [name for name in names if not _is_found(name)]:
        logger.info("Downloading NLTK data: %s", ", ".join(missing))
        command = [sys.executable, "-c", _DOWNLOAD, *missing]
        with suppress(subprocess.TimeoutExpired):  # a process can be ended if the network does not answer
            subprocess.run(command, capture_output=True, timeout=DOWNLOAD_SECONDS, check=False)  # noqa: S603
    if missing := [name for name in missing if not _is_found(name)]:
        raise missing_error(missing)


def missing_error(names: Sequence[str]) -> DatasetError:
    missing = ", ".join(names) or "see the cause"
    return DatasetError(
        f"This game needs NLTK data that is not on this machine and cannot be downloaded: {missing}. "
        f"On a machine with a network, run: python -m nltk.downloader {' '.join(dict.fromkeys([*names, *WORDS]))}. "
        "Then copy the folder nltk_data here, and set NLTK_DATA to it"
    )


def _places(name: str) -> Iterator[Path]:
    named = [folder for folder in os.environ.get("NLTK_DATA", "").split(os.pathsep) if folder]
    parents = (Path.home(), *(Path(sys.prefix, part) for part in ("", "share", "lib")), *map(Path, _SHARED))
    roots = (*map(Path, named), *(parent / "nltk_data" for parent in parents))
    return (root / place for root in roots for place in _within(name))


def _within(name: str) -> Iterator[str]:
    return (f"{folder}/{name}{ending}" for folder in _FOLDERS for ending in ("", ".zip"))


def _is_found(name: str) -> bool:
    find = import_extra("nltk", "textarena", "TextArenaEnv").data.find
    for place in _within(name):
        with suppress(LookupError):
            find(place)
            return True
    return False
