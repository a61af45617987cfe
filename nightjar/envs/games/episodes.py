"""Episodes: a seed each, a reward for each step, and the sum of these in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from nightjar.calling.decorators import cleanup, stop
from nightjar.envs.multiturn import MultiTurnEnv
from nightjar.rollout.state import State
from nightjar.rubrics import Rubric


def sum_step_rewards(state: State) -> float:
    """Returns the sum of the rewards of an episode's steps.

    Example:
        >>> sum_step_rewards(State(trajectory=[{"reward": 0.5}, {"reward": None}, {"reward": 1.0}]))
        1.5
    """
    return float(sum(step.get("reward") or 0.0 for step in state.get("trajectory") or []))


class EpisodicSumRubric(Rubric):
    """Rewards an episode with the sum of its steps' rewards.

    Args:
        weight: of that sum.
        **kwargs: as for ``Rubric``.
    """

    def __init__(self, weight: float = 1.0, **kwargs: Any) -> None:
        super().__init__(funcs=[sum_step_rewards], weights=[weight], **kwargs)


class EpisodeEnv(MultiTurnEnv):
    """Plays an episode for each example; subclasses say in which world.

    Attributes:
        done_key: the key of the state that says whether the world has ended the episode.
    """

    done_key: str

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
            step["reward"] = 0.0 if step["reward"] is None else float(step["reward"])


def splits(
    rows: Callable[[range], Any],
    num_train: int,
    num_eval: int,
    own: Callable[[], Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """Returns the datasets to train and to evaluate on as ``Environment`` takes them: made when they are needed.

    Args:
        rows: makes the examples at some positions: those to train on come first.
        num_train: examples to train on.
        num_eval: examples to evaluate on; there is no such dataset for 0.
        own: what a subclass makes both datasets with instead; None where it has nothing of its own.
    """

    def build(which: int, positions: range) -> Callable[[], Any]:
        return lambda: rows(positions) if own is None else own()[which]

    train, evaluate = build(0, range(num_train)), build(1, range(num_train, num_train + num_eval))
    return {"dataset": train, "eval_dataset": evaluate if num_eval > 0 else None}


def overridden(env: object, name: str, base: type) -> Any:
    """Returns the method of a subclass; None where it has that of ``base``."""
    return None if getattr(type(env), name) is getattr(base, name) else getattr(env, name)


def json_ready(info: dict[str, Any]) -> dict[str, Any]:
    """Returns ``info`` itself where JSON can hold it; else a copy with numbers and lists for arrays, texts for objects.

    A rollout that is resumed is scored from what was saved of it, so nothing in its trajectory may be an object.

    Example:
        >>> json_ready({"at": complex(1, 2), "steps": 3})
        {'at': '(1+2j)', 'steps': 3}
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
