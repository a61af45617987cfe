"""Episodes: a seed each, a reward for each step, and the sum of these in the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from nightjar.calling import run_sync
from nightjar.calling.decorators import cleanup, stop
from nightjar.envs.multiturn import MultiTurnEnv
from nightjar.messages import Messages
from nightjar.rollout.state import State
from nightjar.rubrics import Rubric

if TYPE_CHECKING:
    from datasets import Dataset


def sum_step_rewards(state: State) -> float:
    """Returns the sum of the rewards of an episode's steps."""
    return float(sum(step.get("reward") or 0.0 for step in state.get("trajectory") or []))


class EpisodicSumRubric(Rubric):
    """Rewards an episode with ``weight`` times the sum of its steps' rewards; other arguments as for ``Rubric``."""

    def __init__(self, weight: float = 1.0, **kwargs: Any) -> None:
        super().__init__(funcs=[sum_step_rewards], weights=[weight], **kwargs)


class EpisodeEnv(MultiTurnEnv):
    """Plays an episode for each example; subclasses say in which world.

    Attributes:
        done_key: the key of the state that says whether the world has ended the episode.
        seed: of the first example.
        ask_after_end: show the model how the episode ended and take its last words.
    """

    done_key: str
    seed: int
    ask_after_end: bool

    def _rows(self, positions: range) -> list[dict[str, Any]]:
        seeds = range(self.seed + positions.start, self.seed + positions.stop)
        return run_sync(self._first_rows(seeds)) if seeds else []

    @abstractmethod
    async def _first_rows(self, seeds: range) -> list[dict[str, Any]]:
        """Returns the examples of these seeds: what the model is asked with at first."""

    @abstractmethod
    async def _take_turn_in_world(self, messages: Messages, state: State) -> Messages:
        """Does what the model asked for, notes the reward and whether it was the end; returns what is to be seen."""

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:  # noqa: ARG002
        """Does what the model has just asked for, and returns what is to be seen next."""
        answer = await self._take_turn_in_world(messages, state)
        if answer and state[self.done_key] and not self.ask_after_end:
            state["final_env_response"] = answer
        return answer

    def _refuse(self, error: Exception, state: State) -> str:
        """Ends an episode in which the model said something that is no action."""
        state["trajectory"][-1]["reward"], state[self.done_key] = 0.0, True
        return f"Action Parsing Error: {error}"

    @stop
    async def max_turns_reached(self, state: State) -> bool:
        """Stops after ``max_turns`` model calls; what the last one asked for is still done: its reward counts."""
        if not await super().max_turns_reached(state):
            return False
        last = state["trajectory"][-1]
        if last["reward"] is None and not state.get(self.done_key):
            await self.env_response([*last["prompt"], *last["completion"]], state)
        return True

    @cleanup
    async def settle_rewards(self, state: State) -> None:
        """Counts the steps that have no reward as 0.0: a rubric fills in the rollout's own otherwise."""
        for step in state["trajectory"]:
            step["reward"] = float(step["reward"] or 0.0)


def splits(
    rows: Callable[[range], Any], num_train: int, num_eval: int, own: Callable[[], Sequence[Any]] | None = None
) -> dict[str, Any]:
    """Returns the datasets to train and to evaluate on as ``Environment`` takes them: made when they are needed.

    ``rows`` makes the examples at some positions: those to train on come first. There is no dataset to evaluate on for
    ``num_eval`` 0. A subclass may make both with a method of its ``own`` instead.
    """
    train: Callable[[], Any] = partial(rows, range(num_train))
    evaluate: Callable[[], Any] = partial(rows, range(num_train, num_train + num_eval))
    if own is not None:
        train, evaluate = (lambda: own()[0]), (lambda: own()[1])
    return {"dataset": train, "eval_dataset": evaluate if num_eval > 0 else None}


def made_datasets(rows: Callable[[range], Any], num_train: int, num_eval: int) -> tuple[Dataset, Dataset | None]:
    """Returns the same as ``datasets.Dataset``, made at once."""
    from datasets import Dataset

    train, evaluate = splits(rows, num_train, num_eval).values()
    return Dataset.from_list(train()), Dataset.from_list(evaluate()) if evaluate else None


def overridden(env: object, name: str, base: type) -> Any:
    """Returns the method of a subclass; None where it has that of ``base``."""
    return None if getattr(type(env), name) is getattr(base, name) else getattr(env, name)


def json_ready(info: dict[str, Any]) -> dict[str, Any]:
    """Returns ``info`` itself where JSON can hold it; else a copy with numbers and lists for arrays, texts for objects.

    A rollout that is resumed is scored from what was saved of it, so nothing in its trajectory may be an object.
    """
    try:
        orjson.dumps(info)
    except TypeError:
        options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        plain: dict[str, Any] = orjson.loads(orjson.dumps(info, default=_plain, option=options))
        return plain
    return info


def _plain(value: Any) -> Any:
    """Returns the list of an array or of a set, the text of any other object that JSON has no form for."""
    if isinstance(value, set | frozenset):
        return list(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)
