"""Games of TextArena for one player: made quietly, and each with random numbers of its own.

The games call ``nltk.download`` each time they are made, which prints and asks the network even for what is here. In
its place, what is here is used, and what is missing is fetched once, or named in an error.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from nightjar.envs.games.nltk_data import ensure_here, missing_error
from nightjar.errors import ConfigError
from nightjar.packages.extras import import_extra

_NAMED = re.compile(r"nltk\.download\('(\w+)'\)")
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
            raise missing_error(_NAMED.findall(str(error))) from error
        finally:
            nltk.download = original


def _ensure(names: str | list[str], *_: Any, **__: Any) -> bool:
    """Makes sure that these are here, in place of ``nltk.download``."""
    ensure_here([names] if isinstance(names, str) else names)
    return True


def _import(module: str) -> Any:
    return import_extra(module, "textarena", "TextArenaEnv")
