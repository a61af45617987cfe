"""Records of an evaluation, with the names of ``nemo_evaluator.observability``. A failed step has no reward."""

from __future__ import annotations

import hashlib
import sys
import time
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self

_HASH_CHARACTERS = 16
_TIMES = ("seed_ms", "model_ms", "verify_ms", "total_ms")
_COUNTS = ("prompt", "completion", "total", "reasoning")
_PLAIN = (
    "step_id", "problem_idx", "repeat", "timestamp", "prompt", "expected_answer", "reward", "extracted_answer",
    "scoring_method", "scoring_details", "seed_metadata", "failure_category", "retries",
)  # fmt: skip
_WHERE_SET = ("model_error", "system_prompt", "trajectory")


@dataclass
class ModelResponse:
    """A model's response; counts are None if the endpoint reports none. ``latency_ms`` includes retries."""

    content: str
    model: str = ""
    finish_reason: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    latency_ms: float = 0.0
    reasoning_tokens: int | None = None
    raw_response: dict[str, Any] = field(default_factory=dict)
    request_prompt: str | None = None
    request_system: str | None = None

    @property
    def request_hash(self) -> str:
        return _digest("\0".join([self.request_prompt or "", self.request_system or "", self.model]))

    @property
    def response_hash(self) -> str:
        return _digest(self.content)


@dataclass
class StepRecord:
    """One attempt at a problem, from its seed to its score; ``retries`` counts further attempts."""

    step_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    problem_idx: int = 0
    repeat: int = 0
    timestamp: float = field(default_factory=time.time)
    prompt: str = ""
    system_prompt: str | None = None
    expected_answer: str = ""
    seed_metadata: dict[str, Any] = field(default_factory=dict)
    model_response: ModelResponse | None = None
    model_error: str | None = None
    retries: int = 0
    reward: float | None = 0.0
    extracted_answer: str | None = None
    scoring_method: str = ""
    scoring_details: dict[str, Any] = field(default_factory=dict)
    seed_ms: float = 0.0
    model_ms: float = 0.0
    verify_ms: float = 0.0
    total_ms: float = 0.0
    failure_category: str | None = None
    trajectory: list[dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        line = {name: getattr(self, name) for name in _PLAIN}
        line["timing"] = {name: round(getattr(self, name), 3) for name in _TIMES}
        if (response := self.model_response) is not None:
            line["model"] = {
                **{name: getattr(response, name) for name in ("content", "model", "finish_reason")},
                "tokens": {name: getattr(response, f"{name}_tokens") for name in _COUNTS},
                **{name: getattr(response, name) for name in ("latency_ms", "request_hash", "response_hash")},
            }
        return line | {name: value for name in _WHERE_SET if (value := getattr(self, name))}

    @classmethod
    def from_dict(cls, line: dict[str, Any]) -> Self:
        """Reads a line of ``trajectories.jsonl``; missing fields have their defaults."""
        values = {name: line[name] for name in (*_PLAIN, *_WHERE_SET) if name in line}
        if (response := line.get("model")) is not None:
            tokens, plain = response.get("tokens") or {}, ("model", "finish_reason", "latency_ms")
            known: dict[str, Any] = {f"{name}_tokens": tokens[name] for name in _COUNTS if name in tokens}
            known |= {name: response[name] for name in plain if response.get(name) is not None}
            known |= {"request_prompt": line.get("prompt"), "request_system": line.get("system_prompt")}
            values["model_response"] = ModelResponse(response.get("content") or "", **known)
        times = line.get("timing") or {}
        return cls(**values, **{name: times[name] for name in _TIMES if times.get(name) is not None})


@dataclass
class CostEstimate:
    prompt_cost: float = 0.0
    completion_cost: float = 0.0
    total_cost: float = 0.0
    currency: str = "USD"
    price_per_1k_prompt: float = 0.0
    price_per_1k_completion: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class RuntimeStats:
    """Time and tokens of an evaluation; latencies include retries. ``cost`` is None if no price is known.

    ``total_retries`` counts repeated requests and further attempts. Merged shards have the longest ``elapsed_seconds``.
    """

    total_steps: int = 0
    total_tokens: int = 0
    total_prompt_tokens: int = 0
    total_completion_tokens: int = 0
    total_reasoning_tokens: int = 0
    elapsed_seconds: float = 0.0
    latency_p50_ms: float = 0.0
    latency_p90_ms: float = 0.0
    latency_p99_ms: float = 0.0
    tokens_per_second: float = 0.0
    steps_per_second: float = 0.0
    model_errors: int = 0
    total_retries: int = 0
    finish_reason_counts: dict[str, int] = field(default_factory=dict)
    cost: CostEstimate | None = None

    def to_dict(self) -> dict[str, Any]:
        content = {name: value for name, value in asdict(self).items() if name != "cost" or value is not None}
        percentiles = {name: content.pop(f"latency_{name}_ms") for name in ("p50", "p90", "p99")}
        return content | {"latency_percentiles_ms": percentiles}


@dataclass
class FailureRecord:
    """The failures of one category: count, share of all steps, and the first examples."""

    category: str
    count: int = 0
    percentage: float = 0.0
    exemplars: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class FailureReport:
    total_steps: int = 0
    total_failures: int = 0
    categories: dict[str, FailureRecord] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "total_steps": self.total_steps,
            "total_failures": self.total_failures,
            "failure_rate": self.total_failures / self.total_steps if self.total_steps else 0.0,
            "categories": {
                name: {"count": record.count, "percentage": record.percentage, "exemplars": record.exemplars}
                for name, record in self.categories.items()
            },
        }


@dataclass
class RunArtifacts:
    steps: list[StepRecord] = field(default_factory=list)
    runtime: RuntimeStats = field(default_factory=RuntimeStats)
    failures: FailureReport = field(default_factory=FailureReport)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARACTERS]


class ProgressTracker(Protocol):
    def on_start(self, benchmark: str, total_problems: int, total_repeats: int) -> None:
        """The evaluation starts."""

    def on_step(
        self,
        problem: int,
        repeat: int,
        total_problems: int,
        total_repeats: int,
        reward: float,
        tokens: int | None,
        latency_ms: float,
    ) -> None:
        """A problem is solved and scored; a failed step has the reward 0."""

    def on_phase(self, problem: int, repeat: int, total_problems: int, total_repeats: int, phase: str) -> None:
        """A step enters another phase."""

    def on_done(
        self, correct: int, total: int, elapsed: float, total_tokens: int, mean_reward: float | None = None
    ) -> None:
        """The evaluation has ended."""


class NoOpProgress(ProgressTracker):
    """Ignores all progress."""


class ConsoleProgress(NoOpProgress):
    """Writes progress to stderr, at most one line per ``log_interval`` seconds."""

    def __init__(self, log_interval: float = 60.0) -> None:
        self._interval = log_interval
        self._steps, self._total, self._told_at = 0, 0, 0.0

    def on_start(self, benchmark: str, total_problems: int, total_repeats: int) -> None:
        self._steps, self._total, self._told_at = 0, total_problems * total_repeats, time.monotonic()
        self._say(f"{benchmark}: {total_problems} problems × {total_repeats}")

    def on_step(self, *_: Any, **__: Any) -> None:
        self._steps += 1
        if time.monotonic() - self._told_at >= self._interval:
            self._told_at = time.monotonic()
            self._say(f"{self._steps} of {self._total}")

    def on_done(
        self, correct: int, total: int, elapsed: float, total_tokens: int, mean_reward: float | None = None
    ) -> None:
        mean = "" if mean_reward is None else f", mean {mean_reward:.4f}"
        self._say(f"{correct} of {total} correct{mean}, {total_tokens:,} tokens, {elapsed:.1f} s")

    def _say(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
