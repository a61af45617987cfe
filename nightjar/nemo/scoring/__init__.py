"""Scorers: from an answer and a target to a dict with ``correct``, and what was taken for the answer."""

from nightjar.nemo.scoring.by_name import get_scorer, list_scorers
from nightjar.nemo.scoring.code_execution import code_sandbox, code_sandbox_async
from nightjar.nemo.scoring.json_schema import extract_json, validate_json_schema
from nightjar.nemo.scoring.judge import (
    JudgeScoringConfig,
    build_judge_prompt,
    judge_score,
    needs_judge,
    parse_judge_response,
)
from nightjar.nemo.scoring.pattern import answer_line, multichoice_regex, numeric_match
from nightjar.nemo.scoring.text import exact_match, fuzzy_match, mcq_extract
from nightjar.nemo.scoring.types import ScorerInput

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
