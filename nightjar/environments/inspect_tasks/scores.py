"""Turns the scores of Inspect into the reward and the metrics of a rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from inspect_ai.scorer import Score, value_to_float

from nightjar.core.rollout.state import State
from nightjar.environments.inspect_tasks.conversion import plain
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ScoringError

VALUES, DETAILS, ANSWER = "inspect_values", "scoring_details", "extracted_answer"
_to_float: Callable[[Any], float] = value_to_float()


def record_scores(state: State, scores: Mapping[str, Score]) -> None:
    """Records scores in a rollout's state as plain values, so that they are saved with it."""
    state[VALUES] = {name: value for scorer, score in scores.items() for name, value in _numbers(scorer, score)}
    state[DETAILS] = {
        name: plain(score.model_dump(exclude_none=True, exclude={"history"})) for name, score in scores.items()
    }
    first = next(iter(scores.values()), None)
    state[ANSWER] = None if first is None else first.answer


class InspectRubric(Rubric):
    """Takes the first score as the reward. Each score is a metric, and each value of a dict or list of its own."""

    never_waits = True

    def __init__(self, first: str) -> None:
        super().__init__()
        self.add_reward_func(_reward_function(first))

    async def score_group(self, states: Sequence[State]) -> None:
        """Scores the rollouts, and adds all scores as metrics."""
        await super().score_group(states)
        for state in states:
            if state["error"] is None:
                state["metrics"] |= {name: value for name, value in state[VALUES].items() if value is not None}


def _reward_function(first: str) -> Callable[[State], float]:
    def score(state: State) -> float:
        values: dict[str, float | None] = state.get(VALUES) or {}
        value = next(iter(values.values()), None)
        if value is None:
            raise ScoringError(_without_score(first, (state.get(DETAILS) or {}).get(first)))
        return value

    score.__name__ = first
    return score


def _without_score(scorer: str, details: Mapping[str, Any] | None) -> str:
    if details is None:
        return f"The scorer {scorer!r} gave no score"
    reasons = [str(details[key]) for key in ("reason", "explanation") if details.get(key)]
    return f"The scorer {scorer!r} left the sample unscored" + (f": {': '.join(reasons)}" if reasons else "")


def _numbers(scorer: str, score: Score) -> Iterator[tuple[str, float | None]]:
    value = score.value
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield f"{scorer}_{key}", _number(each)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for position, each in enumerate(value):
            yield f"{scorer}_{position}", _number(each)
    else:
        yield scorer, _number(value)


def _number(value: Any) -> float | None:
    """Returns a value as Inspect's metrics read it: C is 1, P is 0.5, I and N are 0. None: it is not a score."""
    if value is None:
        return None
    number = _to_float(value)
    return number if math.isfinite(number) else None
