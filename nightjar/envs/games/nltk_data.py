"""Data of NLTK that games read: whether it is here, and to have it fetched.

Needs the extra ``textarena``. ``nltk.download`` prints, and asks the network even for what is here.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nightjar.errors import DatasetError
from nightjar.packages.extras import import_extra

logger = logging.getLogger(__name__)

DOWNLOAD_SECONDS = 120.0
WORDS = ("words", "averaged_perceptron_tagger_eng")
"""What TextArena's dictionary is made of."""

_FOLDERS = ("corpora", "taggers", "tokenizers")
_SHARED = ("/usr/share", "/usr/local/share", "/usr/lib", "/usr/local/lib")
_DOWNLOAD = "import nltk, sys; nltk.download(sys.argv[1:], quiet=True)"


@dataclass(frozen=True)
class NltkData:
    """Data of NLTK that a benchmark needs, with what ``BenchmarkData`` says of data on the hub."""

    names: tuple[str, ...] = WORDS
    license: str = "not stated"
    num_examples: int | None = None
    is_gated: bool = False

    def variants(self) -> list[NltkData]:
        """Returns all that the benchmark can be asked to read: this."""
        return [self]

    def is_here(self) -> bool:
        """Says whether all of it is on this machine."""
        return len(self.paths()) == len(self.names)

    def fetch(self) -> None:
        """Fetches what is not here.

        Raises:
            DatasetError: it is not to be had; what to do is said.
        """
        try:
            ensure_here(self.names)
        except ImportError as error:
            raise DatasetError(str(error)) from error

    def paths(self) -> list[Path]:
        """Returns the folders and archives of what is here, where NLTK looks; to import NLTK would take a second."""
        found = (next((place for place in _places(name) if place.exists()), None) for name in self.names)
        return [place for place in found if place is not None]


def ensure_here(names: Sequence[str]) -> None:
    """Fetches data that is not here; ``DatasetError`` where it cannot be had."""
    if missing := [name for name in names if not _is_found(name)]:
        _fetch(missing)
    if missing := [name for name in missing if not _is_found(name)]:
        raise missing_error(missing)


def missing_error(names: Sequence[str]) -> DatasetError:
    """Returns the error that says how to have these fetched."""
    missing = ", ".join(names) or "see the cause"
    return DatasetError(
        f"This game needs data of NLTK that is not on this machine and cannot be fetched: {missing}. "
        f"Where there is a network, run: python -m nltk.downloader {' '.join(dict.fromkeys([*names, *WORDS]))}. "
        "Then copy the folder nltk_data here, and name it in NLTK_DATA"
    )


def _places(name: str) -> Iterator[Path]:
    """Returns where data may be: in the folders of ``NLTK_DATA``, then in those that NLTK knows."""
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


def _fetch(names: Sequence[str]) -> None:
    """Downloads in a process of its own, which can be ended when the network does not answer."""
    logger.info("Fetching data of NLTK: %s", ", ".join(names))
    command = [sys.executable, "-c", _DOWNLOAD, *names]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=DOWNLOAD_SECONDS, check=False)  # noqa: S603
