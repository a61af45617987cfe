"""Scorers: from an answer and a target to a dict with ``correct``, and what was taken for the answer."""

from nightjar.envs.seeded.judge import (
    JudgeScoringConfig,
    build_judge_prompt,
    judge_score,
    needs_judge,
    parse_judge_response,
)
from nightjar.envs.seeded.scorer_input import ScorerInput
from nightjar.nemo.scoring.code_execution import code_sandbox, code_sandbox_async
from nightjar.nemo.scoring.matching import (
    answer_line,
    exact_match,
    fuzzy_match,
    get_scorer,
    list_scorers,
    mcq_extract,
    multichoice_regex,
    numeric_match,
    validate_json_schema,
)
from nightjar.scorers.json_texts import extract_json

__all__ = [
    "JudgeScoringConfig",
    "ScorerInput",
    "answer_line",
    "build_judge_prompt",
    "code_sandbox",
    "code_sandbox_async",
    "exact_match",
    "extract_json",
    "fuzzy_match",
    "get_scorer",
    "judge_score",
    "list_scorers",
    "mcq_extract",
    "multichoice_regex",
    "needs_judge",
    "numeric_match",
    "parse_judge_response",
    "validate_json_schema",
]
