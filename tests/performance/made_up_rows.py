"""The lines of ``results.jsonl`` and ``attempts.jsonl`` of a made-up rollout, as in docs/reference/run-directory.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

Row = dict[str, Any]


def _error(phase: str, chain: list[tuple[str, str]], trace: str | None = None) -> Row:
    return {
        "error": chain[0][0], "message": chain[0][1], "phase": phase,
        "error_chain_repr": " -> ".join(name for name, _ in chain),
        "error_chain_str": " -> ".join(f"{name}: {message}" for name, message in chain), "traceback": trace,
    }  # fmt: skip


_LIMITED = "Error code: 429 - Rate limit reached for requests per minute: limit 500, used 500"
RATE_LIMIT = _error("generation", [("ModelError", _LIMITED), ("RateLimitError", _LIMITED)])
_TRACEBACK = """Traceback (most recent call last):
  File "nightjar/environments/rubrics/rubric.py", line 214, in _call
    value = await call(func, **arguments)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "environments/algebra/algebra.py", line 31, in correct_answer
    return float(numbers[answer] == parsed)
                 ~~~~~~~^^^^^^^^
KeyError: 'answer'

The above exception was the direct cause of the following exception:

nightjar.errors.ScoringError: Reward function 'correct_answer' raised KeyError: 'answer'
"""
ERRORS = (
    RATE_LIMIT,
    _error("generation", [("ModelError", "Request timed out."), ("APITimeoutError", "Request timed out.")]),
    _error("generation", [("EmptyModelResponseError", "The model answered with nothing: no text, no tool call")]),
    _error("generation", [("SandboxError", "Sandbox 'sandbox-1' did not answer within 60 s")]),
    _error(
        "scoring",
        [("ScoringError", "Reward function 'correct_answer' raised KeyError: 'answer'"), ("KeyError", "'answer'")],
        _TRACEBACK,
    ),
)
"""Why rollouts fail, all equally often."""


class Example(NamedTuple):
    """An example of a dataset; prompt and info as JSON that is ready to be written."""

    hash: str
    prompt: orjson.Fragment
    prompt_messages: int
    info: orjson.Fragment
    answer: str
    input_tokens: int
    difficulty: float


class Rollout(NamedTuple):
    """What chance says of a rollout; ``failure`` is a position in :data:`ERRORS`, -1 for none."""

    run_id: str
    model: str
    example_id: int
    rollout_index: int
    example: Example
    said: bytes
    is_correct: bool
    is_formatted: bool
    is_truncated: bool
    is_retried: bool
    failure: int
    finished_at: float
    generation_ms: float
    scoring_ms: float


def result_row(rollout: Rollout) -> Row:
    example = rollout.example
    error = ERRORS[rollout.failure] if rollout.failure >= 0 else None
    is_generated = error is None or error["phase"] == "scoring"
    total_ms = round(rollout.generation_ms + rollout.scoring_ms, 3)
    scores = {"correct_answer": float(rollout.is_correct), "format": float(rollout.is_formatted), "num_turns": 1.0}
    return {
        "example_id": rollout.example_id, "rollout_index": rollout.rollout_index, "example_hash": example.hash,
        "prompt": example.prompt, "completion": _completion(rollout) if is_generated else [], "answer": example.answer,
        "info": example.info, "reward": None if error else 0.9 * rollout.is_correct + 0.1 * rollout.is_formatted,
        "advantage": None, "metrics": {} if error else scores, "error": error,
        "timing": {"generation_ms": rollout.generation_ms, "scoring_ms": rollout.scoring_ms, "total_ms": total_ms},
        "is_completed": True, "is_truncated": rollout.is_truncated and is_generated,
        "stop_condition": "max_turns_reached" if is_generated else "has_error",
        "token_usage": _token_usage(rollout) if is_generated else None, "attempts": 1 + rollout.is_retried,
        "model": rollout.model if is_generated else None,
    }  # fmt: skip


def _completion(rollout: Rollout) -> orjson.Fragment:
    answer = rollout.example.answer
    number = answer if rollout.is_correct else f"{answer}{rollout.rollout_index}"
    return orjson.Fragment(b'[{"role":"assistant","content":"%b.\\n#### %b"}]' % (rollout.said, number.encode()))


def _token_usage(rollout: Rollout) -> Row:
    given, said = rollout.example.input_tokens, len(rollout.said) // 4 + 5
    return {"input_tokens": given, "output_tokens": said, "final_input_tokens": given, "final_output_tokens": said}


def attempt_rows(rollout: Rollout, result: Row) -> Iterator[Row]:
    """Yields the lines of the ledger: one of a failure, where the rollout was retried, and the last one."""
    key = {name: result[name] for name in ("example_id", "rollout_index", "example_hash")}
    if rollout.is_retried:
        yield key | {
            "attempt": 1, "finished_at": round(rollout.finished_at - 2.5, 3), "error": RATE_LIMIT,
            "generation_ms": round(rollout.generation_ms / 7, 3), "token_usage": None, "state": None,
        }  # fmt: skip
    is_generated = bool(result["completion"])
    yield key | {
        "attempt": result["attempts"],
        "finished_at": rollout.finished_at,
        "error": None if is_generated else result["error"],
        "generation_ms": rollout.generation_ms,
        "token_usage": {name: result["token_usage"][name] for name in ("input_tokens", "output_tokens")}
        if is_generated
        else None,
        "state": _state(rollout, result) if is_generated else None,
    }


def _state(rollout: Rollout, result: Row) -> Row:
    trajectory_id = f"{rollout.run_id}{rollout.example_id:010x}{rollout.rollout_index:010x}"
    given, said = result["token_usage"]["input_tokens"], result["token_usage"]["output_tokens"]
    return {
        "completion": result["completion"],
        "trajectory": [
            {
                "prompt": rollout.example.prompt_messages,
                "completion": 1,
                "response": {
                    "id": f"chatcmpl-{trajectory_id[::-1]}",
                    "created": int(rollout.finished_at),
                    "model": rollout.model,
                    "usage": {
                        "prompt_tokens": given,
                        "reasoning_tokens": 0,
                        "completion_tokens": said,
                        "total_tokens": given + said,
                    },
                    "finish_reason": "length" if rollout.is_truncated else "stop",
                },
                "is_truncated": rollout.is_truncated,
                "reward": None,
                "tokens": None,
                "extras": {},
            }
        ],
        "stop_condition": "max_turns_reached",
        "is_completed": True,
        "is_truncated": rollout.is_truncated,
        "trajectory_id": trajectory_id,
        "extras": {},
    }
