"""Games of TextArena for one player: made quietly, and each with random numbers of its own."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from nightjar.envs.games.nltk_data import quiet_downloads
from nightjar.errors import ConfigError
from nightjar.packages.extras import import_extra

_DRAWING = threading.Lock()


def make_game(game: str) -> Any:
    """Returns a game of TextArena that has not started.

    Raises:
        ConfigError: there is no such game, it cannot be made, or data of NLTK that it needs is missing.
    """
    with quiet_downloads():
        textarena = import_extra("textarena", "textarena", "TextArenaEnv")
        registry = import_extra("textarena.envs.registration", "textarena", "TextArenaEnv").ENV_REGISTRY
        if game not in registry:
            raise ConfigError(f"TextArena has no game {game!r}. See textarena.pprint_registry_detailed()")
        try:
            return textarena.make(env_id=game)
        except Exception as error:
            if isinstance(error, ConfigError) or type(error) is LookupError:
                raise
            raise ConfigError(f"TextArena cannot make game {game!r}: {type(error).__name__}: {error}") from error


def start_game(game: Any, name: str, seed: int | None = None) -> str:
    """Starts a game for one player, and returns what it shows.

    Raises:
        ConfigError: it is a game for more than one.
    """
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

    Args:
        seed: of the numbers.

    Example:
        >>> one, other = Luck(1), Luck(1)
        >>> def draw(luck):
        ...     with luck.drawn():
        ...         return random.random()
        >>> [draw(one), draw(one)] == [draw(other), draw(other)]
        True
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
