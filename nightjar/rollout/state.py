"""The state of one rollout: what goes in, what happens, and what it is worth.

``State`` is a dict, as in verifiers 0.1, because reward functions, stop conditions and environments
all read and extend it freely. Everything else that crosses a layer in Nightjar is typed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, NotRequired, TypeAlias, TypedDict

import orjson

from nightjar.messages import Messages, Response
from nightjar.rollout.timing import RolloutTiming
from nightjar.rollout.usage import TokenUsage, UsageTracker, usage_counts

Info: TypeAlias = dict[str, Any]
SamplingArgs: TypeAlias = dict[str, Any]
IndividualRewardFunc: TypeAlias = Callable[..., float | Awaitable[float]]
GroupRewardFunc: TypeAlias = Callable[..., list[float] | Awaitable[list[float]]]
RewardFunc: TypeAlias = IndividualRewardFunc | GroupRewardFunc

_ids = random.Random()  # noqa: S311 - no secret is made of it; one of our own, which no environment seeds
os.register_at_fork(after_in_child=_ids.seed)


class RolloutInput(TypedDict):
    """One example as a rollout takes it. Further dataset columns may stand beside these."""

    prompt: Messages
    example_id: int
    rollout_index: NotRequired[int]
    answer: NotRequired[str]
    info: NotRequired[Info | str]
    task: NotRequired[str | dict[str, Any]]


class RolloutScore(TypedDict):
    """What a rubric makes of one rollout."""

    reward: float
    metrics: dict[str, float]


class RolloutScores(TypedDict):
    """What a rubric makes of a group, in the order of its rollouts."""

    reward: list[float]
    metrics: dict[str, list[float]]


class TrajectoryStepTokens(TypedDict):
    """Token ids of one step, from endpoints that return them."""

    prompt_ids: list[int]
    prompt_mask: list[int]
    completion_ids: list[int]
    completion_mask: list[int]
    completion_logprobs: list[float]
    overlong_prompt: bool
    is_truncated: bool
    routed_experts: list[list[list[int]]] | None


class TrajectoryStep(TypedDict):
    """One model call of a rollout: the messages it was asked with, and its answer."""

    prompt: Messages
    completion: Messages
    response: Response
    tokens: TrajectoryStepTokens | None
    reward: float | None
    advantage: float | None
    is_truncated: bool
    trajectory_id: str
    extras: dict[str, Any]


class State(dict[str, Any]):
    """Everything known about one rollout.

    The keys in ``INPUT_FIELDS`` that ``state["input"]`` has are read from and written to it, so that
    ``state["answer"]`` and ``state["input"]["answer"]`` are one thing. ``task`` without a column of that name is
    the input itself.

    Keys set at the start: ``input``, ``client``, ``model``, ``sampling_args``, ``is_completed``,
    ``is_truncated``, ``stop_condition``, ``tool_defs``, ``trajectory``, ``trajectory_id``, ``timing``,
    ``usage``, ``usage_tracker``, ``completion``, ``final_env_response``, ``reward``, ``advantage``, ``metrics``,
    ``error``.

    Example:
        >>> state = State(input={"prompt": [], "answer": "4", "example_id": 0})
        >>> state["answer"] = "5"
        >>> state["input"]["answer"]
        '5'
    """

    INPUT_FIELDS: ClassVar[frozenset[str]] = frozenset({"prompt", "answer", "task", "info", "example_id"})

    def __missing__(self, key: str) -> Any:
        """Returns a value from the input where the key belongs there; dict calls this for keys it lacks."""
        if key not in self.INPUT_FIELDS:
            raise KeyError(key)
        columns = dict.get(self, "input", {})
        return columns if key == "task" and key not in columns else columns[key]

    def __setitem__(self, key: str, value: Any) -> None:
        """Sets a value, in the input where the key belongs there."""
        if key in self.INPUT_FIELDS and key in (nested := dict.get(self, "input", {})):
            nested[key] = value
        else:
            super().__setitem__(key, value)

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value as ``state[key]`` does, or ``default``."""
        if key not in self.INPUT_FIELDS:
            return dict.get(self, key, default)
        try:
            return self[key]
        except KeyError:
            return default

    def remember_input(self, *names: str) -> None:
        """Takes note of columns of the input as they are now, for ``changed_input``; of all that count unless named."""
        columns, remembered = self["input"], names or ("prompt", "answer", "task", "info")
        known: dict[str, Any] = getattr(self, "_original", {})
        self._original = known | {name: _snapshot(columns.get(name)) for name in remembered}

    def remember_input_of(self, other: State) -> None:
        """Takes over what another state remembers, which this one takes the place of."""
        self._original = getattr(other, "_original", {})

    def changed_input(self) -> dict[str, Any]:
        """Returns the prompt, answer, task and info that differ from what was remembered: an environment set them."""
        columns = self["input"]
        original: dict[str, Any] = getattr(self, "_original", {})
        return {name: columns[name] for name, was in original.items() if _snapshot(columns.get(name)) != was}


def _snapshot(value: Any) -> Any:
    """Returns something that is equal as long as a value is not changed: cheap for texts and for lists of messages."""
    if isinstance(value, list):
        return [*map(id, value)]
    if not isinstance(value, dict):
        return value
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # integers of more than 64 bits, and texts with halves of surrogate pairs
        return repr(value)


def new_state(rollout_input: RolloutInput, **known: Any) -> State:
    """Returns a state in which nothing has happened yet; ``known`` sets what is known of it."""
    tracker = UsageTracker()
    start: dict[str, Any] = {
        "input": rollout_input,
        "client": None,
        "model": "",
        "sampling_args": {},
        "is_completed": False,
        "is_truncated": False,
        "stop_condition": None,
        "tool_defs": [],
        "trajectory": [],
        "trajectory_id": f"{_ids.getrandbits(128):032x}",
        "completion": None,
        "final_env_response": None,
        "reward": None,
        "advantage": None,
        "metrics": None,
        "error": None,
        "timing": RolloutTiming(),
        "usage": tracker.usage,
        "usage_tracker": tracker,
    }
    return State(start | known)


def usage_of(state: State) -> TokenUsage | None:
    """Returns the tokens of a rollout so far; None while no server has named any.

    What was counted is taken from the tracker, so that an environment that sets ``state["usage"]`` changes no count.
    """
    return tracker_of(state).snapshot()


def tracker_of(state: State) -> UsageTracker:
    """Returns what counts the tokens of a rollout; begins to count where nothing does."""
    tracker = state.get("usage_tracker")
    if not isinstance(tracker, UsageTracker):
        tracker = state["usage_tracker"] = UsageTracker()
        state["usage"] = tracker.usage
    return tracker


def add_usage(state: State, response: Any) -> None:
    """Adds the tokens of a response to what the state has counted; nothing where the server names none."""
    usage = getattr(response, "usage", None)
    if usage is None:
        return
    tracker_of(state).increment(*usage_counts(usage), is_cached=bool(getattr(response, "is_cached", False)))
