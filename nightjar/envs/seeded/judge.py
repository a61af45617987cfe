"""A judge's score of an answer: the prompt, how its reply is read, and the check with answer and reference swapped.

The names are those of ``nemo_evaluator.scoring.judge``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Protocol

from nightjar.envs.seeded.scorer_input import ScorerInput
from nightjar.errors import JudgeVerdictError, ScoringError
from nightjar.parsers import without_thoughts
from nightjar.scorers.json_texts import extract_json

DEFAULT_RUBRIC = """\
You grade a response to an instruction.

Instruction:
{instruction}

{answers}

Give a score from 1 (useless or wrong) to {max_score} (right and complete). \
Reply with JSON alone: {{"score": <number>, "reason": "<one sentence>"}}"""

_RESPONSE = "Response:\n{response}"
_REFERENCE = "Reference answer, which is right:\n{expected}"
_BARE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(\d+)")


class Judge(Protocol):
    """A model that can be asked, as ``ModelClient`` can."""

    async def chat(self, prompt: str) -> Any:
        """Returns its reply, whose text is ``content``."""


@dataclass
class JudgeScoringConfig:
    """How a judge scores.

    Attributes:
        rubric_template: with places for ``{instruction}``, ``{answers}`` or ``{response}`` and ``{expected}``, and
            ``{max_score}``.
        max_score: the best score; 1 is the worst.
        threshold: the part of it from which on an answer is correct.
        swap_check: asks a second time with answer and reference in the other order, and takes the mean of both.
        extra_fields: further places of the template.
    """

    rubric_template: str = DEFAULT_RUBRIC
    max_score: int = 5
    threshold: float = 0.6
    swap_check: bool = False
    extra_fields: dict[str, Any] = field(default_factory=dict)


def needs_judge(sample: ScorerInput) -> dict[str, Any]:  # noqa: ARG001 - a scorer's
    """Scores nothing yet: the judge of the run does."""
    return {"needs_judge": True}


def build_judge_prompt(
    instruction: str,
    response: str,
    expected: str | None = None,
    config: JudgeScoringConfig | None = None,
    *,
    is_swapped: bool = False,
) -> str:
    """Returns what the judge is asked; swapped, the response comes after the reference."""
    config = config or JudgeScoringConfig()
    parts = [_RESPONSE.format(response=response), *([_REFERENCE.format(expected=expected)] if expected else [])]
    answers = "\n\n".join(reversed(parts) if is_swapped else parts)
    fields = {"instruction": instruction, "response": response, "expected": expected or "", "answers": answers}
    return config.rubric_template.format(**{**config.extra_fields, **fields, "max_score": config.max_score})


def parse_judge_response(text: str, max_score: int = 5) -> dict[str, Any]:
    """Returns the score that a judge gave, and its part of the best one.

    Raises:
        JudgeVerdictError: there is no score from 0 to the best one.

    Example:
        >>> parse_judge_response('{"score": 4, "reason": "fine"}')["normalized_score"]
        0.8
    """
    plain = without_thoughts(text)
    said = extract_json(plain)
    score = said.get("score") if isinstance(said, dict) else _bare(plain, max_score)
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= max_score:
        raise JudgeVerdictError(f"The judge gave no score from 0 to {max_score}: {text[:200]!r}")
    reason = said.get("reason") if isinstance(said, dict) else None
    return {"score": float(score), "normalized_score": score / max_score, "reason": reason}


async def judge_score(
    instruction: str,
    response: str,
    expected: str | None = None,
    client: Judge | None = None,
    config: JudgeScoringConfig | None = None,
) -> dict[str, Any]:
    """Asks a judge for its score of an answer.

    Raises:
        ScoringError: there is no judge, or it gave no score.
    """
    if client is None:
        raise ScoringError("The answer needs a judge, and there is none. Name one: judge_client, or judge_model in -a")
    config = config or JudgeScoringConfig()
    orders = (False, True) if config.swap_check and expected else (False,)
    found = []
    for is_swapped in orders:
        asked = build_judge_prompt(instruction, response, expected, config, is_swapped=is_swapped)
        found.append(parse_judge_response((await client.chat(asked)).content, config.max_score))
    part = sum(one["normalized_score"] for one in found) / len(found)
    scores = [one["score"] for one in found]
    swapped = {"swapped_score": scores[-1], "swap_differs": scores[0] != scores[-1]} if len(scores) > 1 else {}
    return {**found[0], "normalized_score": part, "correct": part >= config.threshold, **swapped}


def _bare(text: str, max_score: int) -> float | None:
    """Returns the score of a text that has one as ``4/5``, out of what was asked for."""
    found = [float(score) for score, best in _BARE.findall(text) if int(best) == max_score]
    return found[-1] if found else None
