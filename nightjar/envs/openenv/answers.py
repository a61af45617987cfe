"""What an OpenEnv server answers: results of ``reset`` and ``step``, and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nightjar.envs.openenv.project import OpenEnvError


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a server answers to ``reset`` and ``step``.

    Attributes:
        observation: what is to be seen.
        reward: None where the server gives none.
        done: the episode has ended.

    Example:
        >>> StepResult({"prompt": "right"}, reward=1.0, done=True).done
        True
    """

    observation: Any
    reward: float | None
    done: bool


class ServerRefusedError(OpenEnvError):
    """The server answered a message with an error.

    Attributes:
        code: OpenEnv's; ``VALIDATION_ERROR`` for an action that does not fit the schema.
        reason: what it said.

    Example:
        >>> str(ServerRefusedError("VALIDATION_ERROR", "guess must be an integer"))
        'Server error: guess must be an integer (code: VALIDATION_ERROR)'
    """

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(code, reason)

    def __str__(self) -> str:
        return f"Server error: {self.reason} (code: {self.code})"


def refusal(said: dict[str, Any]) -> ServerRefusedError:
    """Returns the error that a server answered with; with the details of a validation, as pydantic gives them.

    Example:
        >>> refusal({"message": "Invalid", "errors": [{"loc": ["guess"], "msg": "no number"}]}).reason
        'Invalid; guess: no number'
    """
    reason = str(said.get("message", "Unknown error"))
    details = said.get("errors")
    for detail in details if isinstance(details, list) else []:
        if isinstance(detail, dict):
            place = ".".join(str(part) for part in detail.get("loc", []))
            reason += f"; {place}: {detail.get('msg')}"
    return ServerRefusedError(str(said.get("code", "UNKNOWN")), reason)


def step_result(body: Any) -> StepResult:
    """Returns the result in an answer to ``reset`` or ``step``.

    Raises:
        OpenEnvError: there is no observation in it.

    Example:
        >>> step_result({"observation": {"prompt": "right"}, "reward": 1, "done": True})
        StepResult(observation={'prompt': 'right'}, reward=1.0, done=True)
    """
    if not isinstance(body, dict) or body.get("observation") is None:
        raise OpenEnvError(f"OpenEnv result is missing required `observation`: {body!r}")
    reward = body.get("reward")
    return StepResult(body["observation"], None if reward is None else float(reward), bool(body.get("done")))
