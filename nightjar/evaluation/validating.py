"""Checks an environment's scoring in real rollouts: reference replies must score 1, and empty replies must score 0."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from nightjar.clients.client import AnyClient, UnaskedClient
from nightjar.core.messages import AssistantMessage, Response, ResponseMessage, content_text
from nightjar.core.rollout.state import RolloutInput, State
from nightjar.environments import Environment
from nightjar.environments.rollouts import tear_down
from nightjar.environments.seeded.bridge import SeededEnv
from nightjar.errors import ConfigError, RunError, error_chain

_RIGHT = 1.0 - 1e-9
_MOST_TURNS = 50
_NUMBER = re.compile(r"\d+")
_NO_REFERENCE = "the data has no reference reply"
_NEEDS_MORE = "a reference reply is worth less than 1 (-v shows the examples; `reference_reply` defines the reply)"


@dataclass(frozen=True)
class Tried:
    """The result of one example: the rewards of the reply and of an empty reply (``blank``), None if not scored."""

    number: int
    asked: str
    expected: Any
    found: str | None
    reward: float | None
    blank: float | None


@dataclass
class Validation:
    """The result of checking an environment; ``problems`` maps each problem to the number of examples that have it."""

    env_id: str
    size: int
    tried: list[Tried] = field(default_factory=list)
    correct: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


async def validate(env: Environment, samples: int, client: AnyClient | None = None, model: str = "") -> Validation:
    """Checks the first examples of an environment, then tears it down. Without a client, replies are the references."""
    started = time.monotonic()
    if isinstance(env, SeededEnv) and env.benchmark.environment_class is not None:
        env = SeededEnv(env.benchmark, env_id=env.env_id, env_args=env.env_args)
    if getattr(env, "max_turns", 1) < 0:
        env.set_kwargs(max_turns=_MOST_TURNS)  # an agent may ask for ever if it gets empty replies
    try:
        found = Validation(env.env_id, len(env.examples))
        if not found.size:
            raise ConfigError(f"Environment {env.env_id!r} has no examples")
        for number in range(min(samples, found.size)):
            await _try(env, number, client, model, found)
    except RunError as error:  # every other example would fail the same way
        _note(found, {f"{'the model' if client else 'the judge'} cannot be asked. {error}"})
    finally:
        await tear_down(env)
    found.seconds = time.monotonic() - started
    return found


async def _try(env: Environment, number: int, client: AnyClient | None, model: str, found: Validation) -> None:
    problems: set[str] = set()
    try:
        example = cast("RolloutInput", env.examples[number])
        replies = [] if client else env.reference_replies(example)
    except Exception as error:  # noqa: BLE001 - a benchmark's code may raise anything
        _note(found, {_text(error)})
        return
    is_known = bool(client or replies)
    state = await _rollout(env, example, client or _Scripted(replies), model, problems) if is_known else None
    blank = await _rollout(env, example, _Scripted(()), model, problems)
    reward, worth = (None if each is None else each["reward"] for each in (state, blank))
    is_right = reward is not None and reward >= (env.pass_threshold if client else _RIGHT)
    found.correct += is_right
    if not is_known:
        problems.add(_NO_REFERENCE)
    elif reward is not None and not is_right and not client and not isinstance(env, SeededEnv):
        problems.add(_NEEDS_MORE)
    if worth is not None and worth > 0:
        problems.add(f"an empty reply is worth {worth:g}")
    _note(found, problems)
    taken = state and (state.get("extracted_answer") or env.rubric.parser.parse_answer(state["completion"]))
    asked = " ".join(content_text(example["prompt"][-1]["content"]).split())
    shown = None if taken is None else str(taken)
    found.tried.append(Tried(number, asked, example.get("answer"), shown, reward, worth))


def _note(found: Validation, problems: set[str]) -> None:
    """Counts a problem. Problems that differ only in numbers count as the same problem."""
    for problem in problems:
        known = next((each for each in found.problems if _NUMBER.sub("", each) == _NUMBER.sub("", problem)), problem)
        found.problems[known] = found.problems.get(known, 0) + 1


async def _rollout(
    env: Environment, example: RolloutInput, client: AnyClient, model: str, problems: set[str]
) -> State | None:
    try:
        state = await env.run_rollout({**example, "rollout_index": 0}, client, model)
    except RunError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        problems.add(_text(error))
        return None
    if state["error"] is not None:
        problems.add(_text(state["error"]))
        return None
    return state


class _Scripted(UnaskedClient):
    def __init__(self, replies: Sequence[AssistantMessage]) -> None:
        super().__init__()
        self._replies = replies

    async def get_response(self, *_: Any, **kwargs: Any) -> Response:
        turn = len(kwargs["state"]["trajectory"])
        said = self._replies[turn] if turn < len(self._replies) else AssistantMessage(content="")
        message = ResponseMessage(**said.model_dump(), finish_reason="stop", is_truncated=False)
        return Response(id="", created=0, model="", message=message)


def _text(error: BaseException) -> str:
    *_, cause = error_chain(error)
    return f"{type(error).__name__}: {error}{'' if str(cause) else type(cause).__name__}"
