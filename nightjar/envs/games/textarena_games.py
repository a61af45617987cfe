"""Games of TextArena for one player: made quietly, and each with random numbers of its own.

The games call ``nltk.download`` each time they are made, which prints and asks the network even for what is here. In
its place, what is here is used, and what is missing is fetched once, or named in an error.
"""

from __future__ import annotations

import logging
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from nightjar.errors import ConfigError
from nightjar.packages.extras import import_extra

logger = logging.getLogger(__name__)

DOWNLOAD_SECONDS = 120.0
_USED = ("words", "averaged_perceptron_tagger_eng")
_FOLDERS = ("corpora", "taggers", "tokenizers")
_NAMED = re.compile(r"nltk\.download\('(\w+)'\)")
_DOWNLOAD = "import nltk, sys; nltk.download(sys.argv[1:], quiet=True)"
_PATCHING = threading.RLock()
_DRAWING = threading.Lock()


def make_game(game: str) -> Any:
    """Returns a game that has not started; ``ConfigError`` where there is none, or data that it needs is missing."""
    with quiet_downloads():
        if game not in _import("textarena.envs.registration").ENV_REGISTRY:
            raise ConfigError(f"TextArena has no game {game!r}. See textarena.pprint_registry_detailed()")
        try:
            return _import("textarena").make(env_id=game)
        except Exception as error:
            if isinstance(error, ConfigError) or type(error) is LookupError:
                raise
            raise ConfigError(f"TextArena cannot make game {game!r}: {type(error).__name__}: {error}") from error


def start_game(game: Any, name: str, seed: int | None = None) -> str:
    """Starts a game for one player, and returns what it shows; ``ConfigError`` where it is for more than one."""
    try:
        game.reset(num_players=1, seed=seed)
    except AssertionError as error:
        raise ConfigError(f"Game {name!r} is not for one player: {error}") from error
    return str(game.get_observation()[1])


def unwrapped(game: Any) -> Any:
    """Returns the game inside its wrappers."""
    while "env" in vars(game):
        game = game.env
    return game


class Luck:
    """Random numbers of one game's own.

    Games draw from the one generator of the ``random`` module. A rollout whose moves draw from it would depend on what
    else runs; here each continues where its own last draw left off.
    """

    def __init__(self, seed: int | str) -> None:
        self._state = random.Random(seed).getstate()  # noqa: S311 - it is a game

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Makes the ``random`` module draw these numbers until the block ends."""
        with _DRAWING:
            before = random.getstate()
            random.setstate(self._state)
            try:
                yield
            finally:
                self._state = random.getstate()
                random.setstate(before)

    def drawn_by(self, game: Any) -> Any:
        """Does what ``drawn`` does, but not for a game that asks a model of its own: it would keep others waiting."""
        return nullcontext() if hasattr(unwrapped(game), "gamemaster") else self.drawn()


@contextmanager
def quiet_downloads() -> Iterator[None]:
    """Lets ``nltk.download`` fetch only what is missing, silently; ``ConfigError`` where that cannot be fetched."""
    nltk = _import("nltk")
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
    wanted = [names] if isinstance(names, str) else names
    if missing := [name for name in wanted if not _is_here(name)]:
        _fetch(missing)
    if missing := [name for name in missing if not _is_here(name)]:
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
    find = _import("nltk").data.find
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
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=DOWNLOAD_SECONDS, check=False)  # noqa: S603


def _import(module: str) -> Any:
    return import_extra(module, "textarena", "TextArenaEnv")
