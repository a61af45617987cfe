"""What a parser finds in completions, kept beside their scores: the state column ``parsed_answer`` of a run."""

from __future__ import annotations

from typing import Any

from nightjar.envs import Environment
from nightjar.parsers import Parser
from nightjar.rollout.state import State
from nightjar.rubrics import RubricGroup

_LONGEST = 4_000


def keep_parsed_answers(env: Environment) -> list[str]:
    """Has every rollout that is scored keep what the parser finds in it.

    Returns:
        The columns of the state that results keep for it; none where parsers only hand on the text that they are given.
    """
    parts = env.rubric.rubrics if isinstance(env.rubric, RubricGroup) else []
    parsers = [env.rubric.parser, *(part.parser for part in parts), env.parser]
    parser = next((one for one in parsers if isinstance(one, Parser) and not one.takes_all), None)
    if parser is None or not env.score_rollouts:
        return []

    def keep_parsed_answer(state: State) -> None:
        if state.get("error") is None and "parsed_answer" not in state:
            state["parsed_answer"] = _found(parser, state["completion"])

    env.rubric.add_cleanup_handler(keep_parsed_answer)
    return ["parsed_answer"]


def _found(parser: Parser, completion: Any) -> Any:
    """Returns the answer in a completion, of a long text the beginning; None where the parser raises."""
    try:
        found = parser.parse_answer(completion)
    except Exception:  # noqa: BLE001 - user code; it has cost no reward, as no reward function was stopped by it
        return None
    return f"{found[:_LONGEST]}…" if isinstance(found, str) and len(found) > _LONGEST else found
