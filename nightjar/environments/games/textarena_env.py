"""``TextArenaEnv``: TextArena's games for one player, such as Wordle. Needs the extra ``textarena``.

The games call ``nltk.download``, which prints and always needs the network. Nightjar's replacement downloads only
missing data. If a download fails, the replacement raises an error that names the data.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from nightjar.core.calling import call
from nightjar.core.calling.decorators import cleanup
from nightjar.core.extras import import_extra
from nightjar.core.messages import Messages, UserMessage
from nightjar.core.rollout.state import State
from nightjar.environments.games.episodes import json_ready, made_datasets, overridden, splits
from nightjar.environments.games.nltk_data import ensure_here, missing_error
from nightjar.environments.multiturn import MultiTurnEnv
from nightjar.environments.parsers import Parser, XMLParser
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ConfigError

if TYPE_CHECKING:
    from datasets import Dataset

_NAMED = re.compile(r"nltk\.download\('(\w+)'\)")
_PATCHING = threading.RLock()
_DRAWING = threading.Lock()


def make_game(game: str) -> Any:
    """Returns a game that has not started. Raises ``ConfigError`` if the game is unknown or its data is missing."""
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
    """Starts a game for one player and returns its observation. Raises ``ConfigError`` if it needs more players."""
    try:
        game.reset(num_players=1, seed=seed)
    except AssertionError as error:
        raise ConfigError(f"Game {name!r} is not for one player: {error}") from error
    return str(game.get_observation()[1])


def unwrapped(game: Any) -> Any:
    while "env" in vars(game):
        game = game.env
    return game


class Luck:
    """Random numbers for one game. Without them, all games would share the ``random`` module's generator."""

    def __init__(self, seed: int | str) -> None:
        self._state = random.Random(seed).getstate()  # noqa: S311 - it is a game

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Makes the ``random`` module draw this game's numbers until the block ends."""
        with _DRAWING:
            before = random.getstate()
            random.setstate(self._state)
            try:
                yield
            finally:
                self._state = random.getstate()
                random.setstate(before)

    def drawn_by(self, game: Any) -> Any:
        """Does the same as ``drawn``, but nothing for a game that asks a model: its wait would block other games."""
        return nullcontext() if hasattr(unwrapped(game), "gamemaster") else self.drawn()


@contextmanager
def quiet_downloads() -> Iterator[None]:
    """Makes ``nltk.download`` fetch only missing data, silently. Unavailable data raises ``ConfigError``."""
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
    ensure_here([names] if isinstance(names, str) else names)
    return True


def _import(module: str) -> Any:
    return import_extra(module, "textarena", "TextArenaEnv")


class TextArenaEnv(MultiTurnEnv):
    """Plays a game: the model moves, the game responds.

    An example's ``answer`` is its secret word in a game with a word list (Wordle), and its seed in any other game. At
    the end of a game, ``state["ta_reward"]`` is set to the reward, and ``state["ta_info"]`` to the reason for the end,
    the number of turns, etc. Rollouts of word games get copies of the started game ``ta_env``, and the copies share
    ``shared_memo``. By default, a guess is read from ``<guess>`` tags after ``<think>`` tags.

    Example:
        >>> def paid(state):
        ...     return state.get("ta_reward", 0.0)
        >>> env = TextArenaEnv("GuessTheNumber-v0", num_train_examples=2, rubric=Rubric([paid]))
        >>> [row["answer"] for row in env.get_dataset()]
        ['0', '1']
    """

    def __init__(
        self,
        game: str = "Wordle-v0",
        num_train_examples: int = 1000,
        num_eval_examples: int = 0,
        system_prompt: str | None = None,
        parser: Parser | None = None,
        rubric: Rubric | None = None,
        feedback_fn: Callable[[str], str] = lambda observation: observation,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        self.game = game
        self.num_train_examples = num_train_examples
        self.num_eval_examples = num_eval_examples
        self.seed = seed
        self.feedback_fn = feedback_fn
        self.ta_env = make_game(game)
        self.shared_memo = self.build_shared_memo(self.ta_env)
        self._unstarted = self._copy(self.ta_env)
        with Luck(seed).drawn_by(self.ta_env):
            self._opening = start_game(self.ta_env, game)
        own = overridden(self, "ta_to_hf", TextArenaEnv)
        super().__init__(
            **splits(self._rows, num_train_examples, num_eval_examples, own),
            system_prompt=system_prompt,
            parser=parser or XMLParser(fields=["think", "guess"], answer_field="guess"),
            rubric=rubric,
            **kwargs,
        )

    @staticmethod
    def build_shared_memo(ta_env: Any) -> dict[int, Any]:
        """Returns a ``deepcopy`` memo of objects that no game changes: dictionary (about 430,000 words), word list."""
        game = unwrapped(ta_env)
        shared = (getattr(game, name, None) for name in ("dictionary", "word_list", "universal_word_list"))
        return {id(value): value for value in shared if value is not None}

    def _copy(self, game: Any) -> Any:
        return deepcopy(game, self.shared_memo.copy())

    def ta_to_hf(self) -> tuple[Dataset, Dataset | None]:
        """Returns the training and evaluation datasets."""
        return made_datasets(self._rows, self.num_train_examples, self.num_eval_examples)

    def _rows(self, positions: range) -> list[dict[str, Any]]:
        if not self._has_secret_word:
            seeds = [self.seed + position for position in positions]
            return [{"question": self._started(seed)[2], "answer": str(seed)} for seed in seeds]
        words = _flat(unwrapped(self.ta_env).word_list)
        drawn = random.Random(self.seed)  # noqa: S311 - it is a game
        answers = [drawn.choice(words) for _ in range(positions.stop)]
        return [{"question": self._opening, "answer": answers[position]} for position in positions]

    @property
    def _has_secret_word(self) -> bool:
        return "secret_word" in (self.ta_env.state.game_state or {}) and hasattr(unwrapped(self.ta_env), "word_list")

    def _started(self, seed: int) -> tuple[Any, Luck, str]:
        game, luck = self._copy(self._unstarted), Luck(seed)
        with luck.drawn_by(game):
            shown = start_game(game, self.game, seed)
        return game, luck, shown

    def _with_word(self, word: str) -> tuple[Any, Luck]:
        game = self._copy(self.ta_env)
        game.state.game_state["secret_word"] = word
        return game, Luck(word)

    async def setup_state(self, state: State, **kwargs: Any) -> State:  # noqa: ARG002 - environments are called so
        if self._has_secret_word:
            state["ta_env"], state["ta_luck"] = await call(self._with_word, state["answer"])
        else:
            state["ta_env"], state["ta_luck"], _ = await call(self._started, int(state["answer"]))
        return state

    @cleanup
    async def cleanup_ta_env(self, state: State) -> None:
        """Releases the game."""
        state.pop("ta_env", None)
        state.pop("ta_luck", None)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:  # noqa: ARG002
        game = state["ta_env"]
        guess = self.parser.parse_answer(messages[-1:])
        await call(self._move, game, state["ta_luck"], str(guess))
        if game.state.done:
            info = dict(game.state.game_info[0])
            state["ta_reward"] = float((game.state.rewards or {}).get(0, 0.0))
            state["ta_info"] = json_ready(info)
            end = UserMessage(content=str(info.get("reason") or "The game has ended."))
            state["final_env_response"] = [end]
            return [end]
        _, observation = await call(game.get_observation)
        return [UserMessage(content=str(await call(self.feedback_fn, observation)))]

    @staticmethod
    def _move(game: Any, luck: Luck, move: str) -> None:
        with luck.drawn_by(game):
            game.step(move)


def _flat(words: Any) -> list[str]:
    if not isinstance(words, dict):
        return list(words)
    return [word for group in words.values() for word in (group if isinstance(group, list | tuple) else [group])]
