"""A judge's score of an answer."""

from nightjar.envs.seeded.judge import (
    DEFAULT_RUBRIC,
    JudgeScoringConfig,
    build_judge_prompt,
    judge_score,
    needs_judge,
    parse_judge_response,
)

__all__ = [
    "DEFAULT_RUBRIC",
    "JudgeScoringConfig",
    "build_judge_prompt",
    "judge_score",
    "needs_judge",
    "parse_judge_response",
]
