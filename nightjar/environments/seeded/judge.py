"""Scores answers with a judge, with the names of ``nemo_evaluator.scoring.judge``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

from nightjar.clients import resolve_client
from nightjar.clients.client import AnyClient
from nightjar.core.messages import UserMessage, content_text
from nightjar.environments.parsers import without_thoughts
from nightjar.environments.rubrics.judge_rubric import chosen_judge_settings, judge_config
from nightjar.environments.scorers.texts import extract_json
from nightjar.environments.seeded.eval_environment import ScorerInput
from nightjar.errors import JudgeVerdictError, ScoringError

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
    """A model to ask, such as ``ModelClient``."""

    async def chat(self, prompt: str) -> Any:
        """Returns the model's reply, whose text is ``content``."""


@dataclass
class JudgeScoringConfig:
    """How a judge scores, from 1 to ``max_score``.

    An answer is correct if its score is at least ``threshold`` times ``max_score``. With ``swap_check``, the judge is
    asked again with answer and reference swapped, and the score is the mean.
    """

    rubric_template: str = DEFAULT_RUBRIC
    max_score: int = 5
    threshold: float = 0.6
    swap_check: bool = False
    extra_fields: dict[str, Any] = field(default_factory=dict)


def needs_judge(sample: ScorerInput) -> dict[str, Any]:  # noqa: ARG001 - a scorer's
    """Leaves the scoring to the run's judge."""
    return {"needs_judge": True}


def build_judge_prompt(
    instruction: str,
    response: str,
    expected: str | None = None,
    config: JudgeScoringConfig | None = None,
    *,
    is_swapped: bool = False,
) -> str:
    config = config or JudgeScoringConfig()
    parts = [_RESPONSE.format(response=response), *([_REFERENCE.format(expected=expected)] if expected else [])]
    answers = "\n\n".join(reversed(parts) if is_swapped else parts)
    fields = {"instruction": instruction, "response": response, "expected": expected or "", "answers": answers}
    return config.rubric_template.format(**{**config.extra_fields, **fields, "max_score": config.max_score})


def parse_judge_response(text: str, max_score: int = 5) -> dict[str, Any]:
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
    """Asks a judge to score an answer. Raises ``ScoringError`` if there is no judge, or the judge gives no score."""
    if client is None:
        raise ScoringError("The answer needs a judge. Set judge_client, or judge_model in -a")
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
    """Returns the score of a text such as ``4/5``, if 5 is the requested maximum."""
    found = [float(score) for score, best in _BARE.findall(text) if int(best) == max_score]
    return found[-1] if found else None


def chosen_judge(model: str | None, base_url: str | None, api_key_var: str | None) -> ModelJudge | None:
    """Returns a model as the judge, at OpenAI by default. If it is None, returns the user's configured judge, or None.

    Only a named model is connected at once, so that a missing key is found before the run. Raises ``ConfigError`` for
    an endpoint without a model.
    """
    settings = chosen_judge_settings(model, base_url, api_key_var)
    if settings is None:
        return None
    judge = ModelJudge(**settings)
    if model is not None:
        judge.open()
    return judge


class ModelJudge:
    """A model as a judge. It is connected on first use, by default to OpenAI."""

    def __init__(self, model: str, base_url: str | None = None, api_key_var: str | None = None) -> None:
        self.model = model
        self._config = judge_config(base_url, api_key_var)
        self._client: AnyClient | None = None

    def open(self) -> AnyClient:
        self._client = self._client or resolve_client(self._config)
        return self._client

    async def chat(self, prompt: str) -> Any:
        response = await self.open().get_response([UserMessage(content=prompt)], self.model, {})
        return SimpleNamespace(content=content_text(response.message.content))
