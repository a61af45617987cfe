"""Plays episodes, each with its own seed. Each step has a reward, and the reward of a rollout is their sum."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from nightjar.core.calling import run_sync
from nightjar.core.calling.decorators import cleanup, stop
from nightjar.core.extras import import_extra
from nightjar.core.messages import Messages
from nightjar.core.rollout.state import State
from nightjar.environments.multiturn import MultiTurnEnv
from nightjar.environments.rubrics import Rubric

if TYPE_CHECKING:
    from datasets import Dataset


def sum_step_rewards(state: State) -> float:
    return float(sum(step.get("reward") or 0.0 for step in state.get("trajectory") or []))


class EpisodicSumRubric(Rubric):
    """Rewards an episode with ``weight`` times the sum of its steps' rewards. For other arguments, see ``Rubric``."""

    def __init__(self, weight: float = 1.0, **kwargs: Any) -> None:
        super().__init__(funcs=[sum_step_rewards], weights=[weight], **kwargs)


class EpisodeEnv(MultiTurnEnv):
    """Plays an episode for each example. ``state[done_key]`` is true once the world has ended the episode."""

    done_key: str
    seed: int
    ask_after_end: bool

    def _rows(self, positions: range) -> list[dict[str, Any]]:
        seeds = range(self.seed + positions.start, self.seed + positions.stop)
        return run_sync(self._first_rows(seeds)) if seeds else []

    @abstractmethod
    async def _first_rows(self, seeds: range) -> list[dict[str, Any]]:
        """Returns the examples of these seeds, with the first prompt of each."""

    @abstractmethod
    async def _take_turn_in_world(self, messages: Messages, state: State) -> Messages:
        """Carries out the model's action, records reward and end, and returns the observation."""

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:  # noqa: ARG002
        answer = await self._take_turn_in_world(messages, state)
        if answer and state[self.done_key] and not self.ask_after_end:
            state["final_env_response"] = answer
        return answer

    def _refuse(self, error: Exception, state: State) -> str:
        state["trajectory"][-1]["reward"], state[self.done_key] = 0.0, True
        return f"Action Parsing Error: {error}"

    @stop
    async def max_turns_reached(self, state: State) -> bool:
        """Stops after ``max_turns`` model calls. The last action is still carried out, because its reward counts."""
        if not await super().max_turns_reached(state):
            return False
        last = state["trajectory"][-1]
        if last["reward"] is None and not state.get(self.done_key):
            await self.env_response([*last["prompt"], *last["completion"]], state)
        return True

    @cleanup
    async def settle_rewards(self, state: State) -> None:
        """Sets missing rewards of steps to 0.0; otherwise a rubric would copy the rollout's reward to them."""
        for step in state["trajectory"]:
            step["reward"] = float(step["reward"] or 0.0)


def splits(
    rows: Callable[[range], Any], num_train: int, num_eval: int, own: Callable[[], Sequence[Any]] | None = None
) -> dict[str, Any]:
    """Returns functions that create the datasets with ``rows``, or with ``own``, which returns both datasets."""
    train: Callable[[], Any] = partial(rows, range(num_train))
    evaluate: Callable[[], Any] = partial(rows, range(num_train, num_train + num_eval))
    if own is not None:
        train, evaluate = (lambda: own()[0]), (lambda: own()[1])
    return {"dataset": train, "eval_dataset": evaluate if num_eval > 0 else None}


def made_datasets(rows: Callable[[range], Any], num_train: int, num_eval: int) -> tuple[Dataset, Dataset | None]:
    kind = import_extra("datasets", "datasets", "A datasets.Dataset").Dataset
    train, evaluate = splits(rows, num_train, num_eval).values()
    return kind.from_list(train()), kind.from_list(evaluate()) if evaluate else None


def overridden(env: object, name: str, base: type) -> Any:
    """Returns a method if a subclass overrides it; None if it is the method of ``base``."""
    return None if getattr(type(env), name) is getattr(base, name) else getattr(env, name)


def json_ready(info: dict[str, Any]) -> dict[str, Any]:
    """Returns ``info``, or a copy that JSON can hold, because a resumed rollout is scored from the saved JSON."""
    try:
        orjson.dumps(info)
    except TypeError:
        options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        plain: dict[str, Any] = orjson.loads(orjson.dumps(info, default=_plain, option=options))
        return plain
    return info


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return list(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)
