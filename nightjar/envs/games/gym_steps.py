"""What worlds with ``reset`` and ``step`` return, in one form, and the reward of an episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import orjson

from nightjar.rollout.state import State
from nightjar.rubrics import Rubric

ResetOut: TypeAlias = Any | tuple[Any, dict[str, Any]]
StepOut: TypeAlias = tuple[Any, float, bool, bool, dict[str, Any]] | tuple[Any, float, bool, dict[str, Any]]

_STEP_LENGTHS = (4, 5)


class StepResetEnv(Protocol):
    """A world as Gym has made them known; both methods may be sync or async, and ``close()`` is called if it is there.

    ``reset(seed=...)`` returns an observation, or (observation, info). ``step(action)`` returns (observation, reward,
    done, info), or (observation, reward, terminated, truncated, info).

    Example:
        >>> class Coin:
        ...     def reset(self, seed):
        ...         return "heads or tails?"
        ...     def step(self, action):
        ...         return "it was heads", float(action == "heads"), True, {}
        >>> world: StepResetEnv = Coin()
    """

    def reset(self, *, seed: int) -> Any:
        """Starts an episode."""

    def step(self, action: Any) -> Any:
        """Takes an action."""


def normalize_reset(out: ResetOut) -> tuple[Any, dict[str, Any]]:
    """Returns (observation, info) of what ``reset`` returned; a pair is split only where its second part is a dict.

    Example:
        >>> normalize_reset("x=0"), normalize_reset(("x=0", {"goal": 3})), normalize_reset((2, 5))
        (('x=0', {}), ('x=0', {'goal': 3}), ((2, 5), {}))
    """
    if isinstance(out, tuple) and len(out) == 2 and (out[1] is None or isinstance(out[1], Mapping)):  # noqa: PLR2004
        return out[0], dict(out[1] or {})
    return out, {}


def normalize_step(out: StepOut) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Returns (observation, reward, terminated, truncated, info) of what ``step`` returned.

    Raises:
        TypeError: it is neither a 4-tuple nor a 5-tuple.

    Example:
        >>> normalize_step(("x=1", 1, True, {}))
        ('x=1', 1.0, True, False, {})
    """
    if not isinstance(out, tuple | list) or len(out) not in _STEP_LENGTHS:
        raise TypeError(f"step() must return a tuple of 4 or 5 values, found {out!r}")
    values: list[Any] = list(out)
    observation, reward, terminated, info = *values[:3], values[-1]
    truncated = len(values) == _STEP_LENGTHS[1] and bool(values[3])
    return observation, float(reward), bool(terminated), truncated, dict(info or {})


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


def sum_step_rewards(state: State) -> float:
    """Returns the sum of the rewards of an episode's steps.

    Example:
        >>> sum_step_rewards(State(trajectory=[{"reward": 0.5}, {"reward": None}, {"reward": 1.0}]))
        1.5
    """
    return float(sum(step.get("reward") or 0.0 for step in state.get("trajectory") or []))


def settle_rewards(state: State) -> None:
    """Counts the steps of an ended episode that have no reward as 0.0: a rubric fills in the rollout's own otherwise.

    Example:
        >>> state = State(trajectory=[{"reward": 0.5}, {"reward": None}])
        >>> settle_rewards(state)
        >>> [step["reward"] for step in state["trajectory"]]
        [0.5, 0.0]
    """
    for step in state["trajectory"]:
        step["reward"] = 0.0 if step["reward"] is None else float(step["reward"])


class EpisodicSumRubric(Rubric):
    """Rewards an episode with the sum of its steps' rewards.

    Args:
        weight: of that sum.
        **kwargs: as for ``Rubric``.

    Example:
        >>> EpisodicSumRubric(weight=0.5).weights
        [0.5]
    """

    def __init__(self, weight: float = 1.0, **kwargs: Any) -> None:
        super().__init__(funcs=[sum_step_rewards], weights=[weight], **kwargs)
