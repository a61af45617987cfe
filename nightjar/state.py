"""The state of one rollout: what goes in, what happens, and what it is worth.

``State`` is a dict, as in verifiers 0.1, because reward functions, stop conditions and environments
all read and extend it freely. Everything else that crosses a layer in Nightjar is typed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, NotRequired, TypeAlias, TypedDict

import orjson

from nightjar.messages import Messages, Response

Info: TypeAlias = dict[str, Any]
SamplingArgs: TypeAlias = dict[str, Any]
IndividualRewardFunc: TypeAlias = Callable[..., float | Awaitable[float]]
GroupRewardFunc: TypeAlias = Callable[..., list[float] | Awaitable[list[float]]]
RewardFunc: TypeAlias = IndividualRewardFunc | GroupRewardFunc


class RolloutInput(TypedDict):
    """One example as a rollout takes it. Further dataset columns may stand beside these."""

    prompt: Messages
    example_id: int
    rollout_index: NotRequired[int]
    answer: NotRequired[str]
    info: NotRequired[Info | str]
    task: NotRequired[str | dict[str, Any]]


class TokenUsage(TypedDict):
    """Tokens of all model calls of a rollout."""

    input_tokens: float
    output_tokens: float


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


class TimeSpan:
    """A stretch of time; ``start`` and ``end`` are Unix times in seconds, 0.0 until they are known."""

    __slots__ = ("end", "start")

    def __init__(self, start: float = 0.0, end: float = 0.0) -> None:
        self.start = start
        self.end = end

    @property
    def duration(self) -> float:
        """Seconds from start to end; 0.0 while it is open."""
        return max(0.0, self.end - self.start)


class RolloutTiming(dict[str, float]):
    """How long a rollout took: ``generation_ms``, ``scoring_ms``, ``total_ms``, and the spans.

    Attributes:
        generation: from the first to the last moment of the rollout.
        scoring: the time in the rubric.
    """

    __slots__ = ("generation", "scoring")

    def __init__(self) -> None:
        now = time.time()
        super().__init__(start_time=now, generation_ms=0.0, scoring_ms=0.0, total_ms=0.0)
        self.generation = TimeSpan(now)
        self.scoring = TimeSpan()

    def end_generation(self) -> None:
        """Closes the generation span."""
        self.generation.end = time.time()
        self._set(self.generation.duration * 1000, self["scoring_ms"])

    def add_scoring(self, start: float) -> None:
        """Adds a scoring span from ``start`` (Unix time in seconds) to now."""
        self.scoring = TimeSpan(start, time.time())
        self._set(self["generation_ms"], self["scoring_ms"] + self.scoring.duration * 1000)

    def restore(self, generation_ms: float) -> None:
        """Sets the generation time of a rollout that is read back from disk."""
        self._set(generation_ms, 0.0)

    def _set(self, generation_ms: float, scoring_ms: float) -> None:
        self["generation_ms"] = round(generation_ms, 3)
        self["scoring_ms"] = round(scoring_ms, 3)
        self["total_ms"] = round(generation_ms + scoring_ms, 3)


class State(dict[str, Any]):
    """Everything known about one rollout.

    The keys in ``INPUT_FIELDS`` that ``state["input"]`` has are read from and written to it, so that
    ``state["answer"]`` and ``state["input"]["answer"]`` are one thing.

    Keys set at the start: ``input``, ``client``, ``model``, ``sampling_args``, ``is_completed``,
    ``is_truncated``, ``stop_condition``, ``tool_defs``, ``trajectory``, ``trajectory_id``, ``timing``,
    ``usage``, ``completion``, ``reward``, ``advantage``, ``metrics``, ``error``.
    """

    INPUT_FIELDS: ClassVar[frozenset[str]] = frozenset({"prompt", "answer", "task", "info", "example_id"})

    def __missing__(self, key: str) -> Any:
        """Returns a value from the input where the key belongs there; dict calls this for keys it lacks."""
        if key in self.INPUT_FIELDS:
            return dict.__getitem__(self, "input")[key]
        raise KeyError(key)

    def __setitem__(self, key: str, value: Any) -> None:
        """Sets a value, in the input where the key belongs there."""
        if key in self.INPUT_FIELDS and key in (nested := dict.get(self, "input", {})):
            nested[key] = value
        else:
            super().__setitem__(key, value)

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value as ``state[key]`` does, or ``default``."""
        if key in self:
            return dict.__getitem__(self, key)
        if key in self.INPUT_FIELDS:
            return dict.get(self, "input", {}).get(key, default)
        return default

    def remember_input(self) -> None:
        """Takes note of the input as it is now, for ``changed_input``."""
        columns = self["input"]
        self._original = {name: _snapshot(columns.get(name)) for name in ("prompt", "answer", "task", "info")}

    def changed_input(self) -> dict[str, Any]:
        """Returns the prompt, answer, task and info that differ from what was remembered: an environment set them."""
        columns = self["input"]
        original: dict[str, Any] = getattr(self, "_original", {})
        return {name: columns[name] for name, was in original.items() if _snapshot(columns.get(name)) != was}


def _snapshot(value: Any) -> Any:
    """Returns something that is equal as long as a value is not changed: cheap for texts and for lists of messages."""
    if isinstance(value, list):
        return [id(item) for item in value]
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS) if isinstance(value, dict) else value


def new_state(rollout_input: RolloutInput, **known: Any) -> State:
    """Returns a state in which nothing has happened yet; ``known`` sets what is known of it."""
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
        "trajectory_id": uuid.uuid4().hex,
        "completion": None,
        "final_env_response": None,
        "reward": None,
        "advantage": None,
        "metrics": None,
        "error": None,
        "timing": RolloutTiming(),
        "usage": None,
    }
    return State(start | known)


def add_usage(state: State, response: Response) -> None:
    """Adds the tokens of a response to ``state["usage"]``, which stays None while no server names any."""
    if response.usage is None:
        return
    usage = state["usage"] or {"input_tokens": 0, "output_tokens": 0}
    state["usage"] = {
        "input_tokens": usage["input_tokens"] + response.usage.prompt_tokens,
        "output_tokens": usage["output_tokens"] + response.usage.completion_tokens,
    }
