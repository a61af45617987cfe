"""``TextArenaEnv``: games of TextArena for one player, Wordle first of all.

Needs the extra ``textarena``. Wordle needs data of NLTK: ``words`` and ``averaged_perceptron_tagger_eng``; Hangman,
WordLadder, WordSearch and Crosswords need ``words``. It is fetched when it is missing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from nightjar.calling import call
from nightjar.calling.decorators import cleanup
from nightjar.envs.games.episodes import json_ready, made_datasets, overridden, splits
from nightjar.envs.games.textarena_games import Luck, make_game, start_game, unwrapped
from nightjar.envs.multiturn import MultiTurnEnv
from nightjar.messages import Messages, UserMessage
from nightjar.parsers import Parser, XMLParser
from nightjar.rollout.state import State
from nightjar.rubrics import Rubric

if TYPE_CHECKING:
    from datasets import Dataset


class TextArenaEnv(MultiTurnEnv):
    """Plays a game: the model guesses or moves, the game answers.

    In a game with a secret word and a list of words (Wordle), each example has a word of its own, which is its
    ``answer``. In any other game each example has a seed of its own, which is its ``answer``, and starts as the game
    does with that seed. For reward functions, ``state["ta_reward"]`` is what the game paid at its end (a game that has
    not ended has none), and ``state["ta_info"]`` says why it ended, after how many turns, and so on.

    Args:
        game: as TextArena registers it, ``"Wordle-v0"``.
        num_train_examples: examples to train on.
        num_eval_examples: examples to evaluate on; those to train on serve where there are none.
        system_prompt, rubric, **kwargs: as for ``MultiTurnEnv``.
        parser: finds the guess; ``<guess>`` after ``<think>`` unless given.
        feedback_fn: from what the game shows to what the model reads.
        seed: of the words, or of the first example.

    Attributes:
        ta_env: a started game, of which each rollout in a game of words gets a copy; these share ``shared_memo``.

    Raises:
        ImportError: the extra is not installed.
        ConfigError: there is no such game for one player, or data of NLTK is missing and cannot be fetched.

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
            message_type="chat",
            **kwargs,
        )

    @staticmethod
    def build_shared_memo(ta_env: Any) -> dict[int, Any]:
        """Returns the ``deepcopy`` memo of what no game changes: its dictionary (some 430,000 words) and word list."""
        game = unwrapped(ta_env)
        shared = (getattr(game, name, None) for name in ("dictionary", "word_list", "universal_word_list"))
        return {id(value): value for value in shared if value is not None}

    def _copy(self, game: Any) -> Any:
        return deepcopy(game, self.shared_memo.copy())

    def ta_to_hf(self) -> tuple[Dataset, Dataset | None]:
        """Returns the datasets to train and to evaluate on."""
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
        """Gives the rollout a game of its own."""
        if self._has_secret_word:
            state["ta_env"], state["ta_luck"] = await call(self._with_word, state["answer"])
        else:
            state["ta_env"], state["ta_luck"], _ = await call(self._started, int(state["answer"]))
        return state

    @cleanup
    async def cleanup_ta_env(self, state: State) -> None:
        """Lets go of the game."""
        state.pop("ta_env", None)
        state.pop("ta_luck", None)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:  # noqa: ARG002
        """Makes the move that the model has just said, and returns what the game answers."""
        game = state["ta_env"]
        guess = self.parser.parse_answer(messages[-1:])
        await call(self._move, game, state["ta_luck"], str(guess))
        if game.state.done:
            state["final_env_response"] = [UserMessage(content=self._note_end(state))]
            return list(state["final_env_response"])
        _, observation = await call(game.get_observation)
        return [UserMessage(content=str(await call(self.feedback_fn, observation)))]

    @staticmethod
    def _move(game: Any, luck: Luck, move: str) -> None:
        with luck.drawn_by(game):
            game.step(move)

    @staticmethod
    def _note_end(state: State) -> str:
        """Notes what the game pays, and returns why it has ended."""
        ended = state["ta_env"].state
        info = dict(ended.game_info[0])
        state["ta_reward"] = float((ended.rewards or {}).get(0, 0.0))
        state["ta_info"] = json_ready(info)
        return str(info.get("reason") or "The game has ended.")


def _flat(words: Any) -> list[str]:
    """Returns the words of a list, or of a dict of lists."""
    if not isinstance(words, dict):
        return list(words)
    return [word for group in words.values() for word in (group if isinstance(group, list | tuple) else [group])]
