"""The state of a rollout, and the steps of its trajectory."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, NotRequired, TypeAlias, TypedDict

import orjson

from nightjar.core.messages import AssistantMessage, Messages, Response
from nightjar.core.rollout.usage import RolloutTiming, TokenUsage, UsageTracker, usage_counts

Info: TypeAlias = dict[str, Any]
SamplingArgs: TypeAlias = dict[str, Any]
IndividualRewardFunc: TypeAlias = Callable[..., float | Awaitable[float]]
GroupRewardFunc: TypeAlias = Callable[..., list[float] | Awaitable[list[float]]]
RewardFunc: TypeAlias = IndividualRewardFunc | GroupRewardFunc

_ids = random.Random()  # noqa: S311 - not a secret; our own generator, which no environment seeds


os.register_at_fork(after_in_child=_ids.seed)


class RolloutInput(TypedDict):
    """The input of a rollout: one example, perhaps with more dataset columns."""

    prompt: Messages
    example_id: int
    rollout_index: NotRequired[int]
    answer: NotRequired[str]
    info: NotRequired[Info | str]
    task: NotRequired[str | dict[str, Any]]


class RolloutScore(TypedDict):
    """The reward and metrics of one rollout."""

    reward: float
    metrics: dict[str, float]


class RolloutScores(TypedDict):
    """The rewards and metrics of a group, in the order of its rollouts."""

    reward: list[float]
    metrics: dict[str, list[float]]


class TrajectoryStepTokens(TypedDict):
    """Token ids of one step, if the endpoint returns them."""

    prompt_ids: list[int]
    prompt_mask: list[int]
    completion_ids: list[int]
    completion_mask: list[int]
    completion_logprobs: list[float]
    overlong_prompt: bool
    is_truncated: bool
    routed_experts: list[list[list[int]]] | None


class TrajectoryStep(TypedDict):
    """One model call of a rollout: its messages and its response."""

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
    """Everything known about one rollout. ``new_state`` lists the keys.

    The keys in ``INPUT_FIELDS`` are read from and written to ``state["input"]`` if the input has these keys. So
    ``state["answer"]`` and ``state["input"]["answer"]`` are the same value. Without a column ``task``,
    ``state["task"]`` is the input itself.

    Example:
        >>> state = State(input={"prompt": [], "answer": "4", "example_id": 0})
        >>> state["answer"] = "5"
        >>> state["input"]["answer"]
        '5'
    """

    INPUT_FIELDS: ClassVar[frozenset[str]] = frozenset({"prompt", "answer", "task", "info", "example_id"})

    def __missing__(self, key: str) -> Any:
        if key not in self.INPUT_FIELDS:
            raise KeyError(key)
        columns = dict.get(self, "input", {})
        return columns if key == "task" and key not in columns else columns[key]

    def __setitem__(self, key: str, value: Any) -> None:
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
        """Remembers input columns for ``changed_input``. The default columns are the prompt, answer, task and info."""
        columns, remembered = self["input"], names or ("prompt", "answer", "task", "info")
        known: dict[str, Any] = getattr(self, "_original", {})
        self._original = known | {name: _snapshot(columns.get(name)) for name in remembered}

    def remember_input_of(self, other: State) -> None:
        """Copies the remembered columns from ``other``. This state replaces ``other``."""
        self._original = getattr(other, "_original", {})

    def changed_input(self) -> dict[str, Any]:
        """Returns the remembered columns that the environment has changed since."""
        columns = self["input"]
        original: dict[str, Any] = getattr(self, "_original", {})
        return {name: columns[name] for name, was in original.items() if _snapshot(columns.get(name)) != was}


def _snapshot(value: Any) -> Any:
    """Returns a snapshot to detect changes of a value. It is cheap for texts and lists of messages."""
    if isinstance(value, list):
        return [*map(id, value)]
    if not isinstance(value, dict):
        return value
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # integers of more than 64 bits, and texts with halves of surrogate pairs
        return repr(value)


def new_state(rollout_input: RolloutInput, **known: Any) -> State:
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
    return State(start, **known)


def usage_of(state: State) -> TokenUsage | None:
    """Returns the tokens of a rollout so far, or None if no response had usage. ``state["usage"]`` has no effect."""
    return tracker_of(state).snapshot()


def tracker_of(state: State) -> UsageTracker:
    tracker = state.get("usage_tracker")
    if not isinstance(tracker, UsageTracker):
        tracker = state["usage_tracker"] = UsageTracker()
        state["usage"] = tracker.usage
    return tracker


def add_usage(state: State, response: Any) -> None:
    usage = getattr(response, "usage", None)
    if usage is None:
        return
    tracker_of(state).increment(*usage_counts(usage), is_cached=bool(getattr(response, "is_cached", False)))


def new_step(
    prompt: Messages, response: Response, trajectory_id: str, max_seq_len: int | None = None
) -> TrajectoryStep:
    """Returns the step of a model call.

    If the token ids exceed ``max_seq_len``, they are cut and the step is truncated.
    """
    tokens = response_tokens(response, max_seq_len)
    return TrajectoryStep(
        prompt=prompt,
        completion=response_messages(response),
        response=response,
        tokens=tokens,
        reward=None,
        advantage=None,
        is_truncated=bool(response.message.is_truncated) or (tokens is not None and tokens["is_truncated"]),
        trajectory_id=trajectory_id,
        extras={},
    )


def response_messages(response: Response) -> Messages:
    message = response.message
    return [
        AssistantMessage(
            content=message.content,
            reasoning_content=message.reasoning_content,
            thinking_blocks=message.thinking_blocks,
            tool_calls=message.tool_calls,
            **(message.model_extra or {}),
        )
    ]


def response_tokens(response: Response, max_seq_len: int | None = None) -> TrajectoryStepTokens | None:
    """Returns the token ids of a response, cut to ``max_seq_len``. Returns None if the endpoint sent no token ids."""
    tokens = response.message.tokens
    if tokens is None:
        return None
    given, written = len(tokens.prompt_ids), len(tokens.completion_ids)
    limit = given + written if max_seq_len is None else max_seq_len
    kept = max(0, limit - given)
    return TrajectoryStepTokens(
        prompt_ids=tokens.prompt_ids[:limit],
        prompt_mask=tokens.prompt_mask[:limit],
        completion_ids=tokens.completion_ids[:kept],
        completion_mask=tokens.completion_mask[:kept],
        completion_logprobs=tokens.completion_logprobs[:kept],
        overlong_prompt=given > limit,
        is_truncated=given + written > limit,
        routed_experts=None if tokens.routed_experts is None else tokens.routed_experts[:kept],
    )
