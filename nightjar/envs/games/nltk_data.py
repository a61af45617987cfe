"""The data of NLTK that word games need: what is here is used, what is missing is fetched once, or named in an error.

TextArena's games ask for their data with ``nltk.download`` each time they are made. That prints, asks the network even
for what is here, and where there is no network fails much later, as a missing file.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nightjar.errors import ConfigError
from nightjar.packages.extras import import_extra

logger = logging.getLogger(__name__)

DOWNLOAD_SECONDS = 120.0
"""How long a download may take."""

_USED = ("words", "averaged_perceptron_tagger_eng")
_FOLDERS = ("corpora", "taggers", "tokenizers")
_NAMED = re.compile(r"nltk\.download\('(\w+)'\)")
_DOWNLOAD = "import nltk, sys; nltk.download(sys.argv[1:], quiet=True)"
_PATCHING = threading.RLock()


@contextmanager
def quiet_downloads() -> Iterator[None]:
    """Lets ``nltk.download`` fetch only what is missing, and silently, until the block ends.

    Raises:
        ConfigError: something is missing and cannot be fetched.

    Example:
        >>> import nltk
        >>> with quiet_downloads():
        ...     nltk.download([])
        True
    """
    nltk = import_extra("nltk", "textarena", "TextArenaEnv")
    with _PATCHING:
        original = nltk.download
        nltk.download = _ensure
        try:
            yield
        except LookupError as error:
            if type(error) is not LookupError:  # a KeyError or an IndexError of a game's own
                raise
            raise _missing_error(_NAMED.findall(str(error))) from error
        finally:
            nltk.download = original


def _ensure(names: str | list[str], *_: Any, **__: Any) -> bool:
    """Makes sure that these are here, in place of ``nltk.download``."""
    missing = [name for name in ([names] if isinstance(names, str) else names) if not _is_here(name)]
    if missing:
        _fetch(missing)
        missing = [name for name in missing if not _is_here(name)]
    if missing:
        raise _missing_error(missing)
    return True


def _missing_error(names: list[str]) -> ConfigError:
    missing = ", ".join(names) or "see the cause"
    return ConfigError(
        f"This game needs data of NLTK that is not on this machine and cannot be fetched: {missing}. "
        f"Where there is a network, run: python -m nltk.downloader {' '.join(dict.fromkeys([*names, *_USED]))}. "
        "Then copy the folder nltk_data here, and name it in NLTK_DATA"
    )


def _is_here(name: str) -> bool:
    find = import_extra("nltk", "textarena", "TextArenaEnv").data.find
    for place in (f"{folder}/{name}{ending}" for folder in _FOLDERS for ending in ("", ".zip")):
        try:
            find(place)
        except LookupError:
            continue
        return True
    return False


def _fetch(names: list[str]) -> None:
    """Downloads in a process of its own, which can be ended when the network does not answer."""
    logger.info("Fetching data of NLTK: %s", ", ".join(names))
    command = [sys.executable, "-c", _DOWNLOAD, *names]
    try:
        subprocess.run(command, capture_output=True, timeout=DOWNLOAD_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        logger.warning("Fetching data of NLTK took longer than %s s", DOWNLOAD_SECONDS)
