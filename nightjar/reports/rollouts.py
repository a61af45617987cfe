"""Queries about all rollouts of a run: the reasons for failures, the rewards, and the time and tokens of a rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nightjar.core.failures import FailureClass, failure_class

PARSED = ("parsed_answer", "extracted_answer")
"""Columns of the state with a parsed answer, in Nightjar's runs and in NeMo Evaluator's runs."""
RUN = """
SELECT runs.* EXCLUDE (cost, input_tokens, output_tokens),
    coalesce(paid.cost, runs.cost) AS cost,
    coalesce(paid.input_tokens, runs.input_tokens) AS input_tokens,
    coalesce(paid.output_tokens, runs.output_tokens) AS output_tokens,
    paid.attempts,
    (SELECT count(*) FROM segments.attempts WHERE run_id = $run_id AND error IS NOT NULL) AS failed_attempts
FROM runs LEFT JOIN (FROM cost WHERE run_id = $run_id) AS paid USING (run_id)
WHERE runs.run_id = $run_id
"""
"""The run ``$run_id``, with the cost and tokens of all its attempts, including failed attempts."""
TEXTS = """
    left(coalesce(
        nullif(array_to_string(prompt ->> '$[#-1].content[*].text', ' '), ''), prompt ->> '$[#-1].content',
        prompt ->> '$'
    ), 400) AS prompt,
    left(answer, 400) AS target,
    left(coalesce(
        state ->> 'parsed_answer', state ->> 'extracted_answer', (state ->> '$.scores.*.answer')[1]
    ), 400) AS answer
"""
"""SQL: the beginnings of the last prompt, the target and the parsed answer of a rollout, also Inspect's."""
TURNS = "len(list_filter(completion ->> '$[*].role', lambda role: role = 'assistant'))"
"""SQL: the number of turns of the model in a rollout."""
_ERRORS = """
SELECT
    coalesce(error_chain, error) AS chain, error_phase AS phase, count(*) AS count,
    arg_min(
        {example_id: example_id, rollout_index: rollout_index, message: left(error_message, 2000)},
        (example_id, rollout_index)
    ) AS first
FROM segments.rollouts WHERE run_id = $run_id AND error IS NOT NULL
GROUP BY ALL ORDER BY count DESC, chain
"""
_SPREADS = """
SELECT
    quantile_cont(generation_ms / 1000, [0.5, 0.9, 0.99]) AS "Generation",
    quantile_cont(scoring_ms / 1000, [0.5, 0.9, 0.99]) AS "Scoring",
    quantile_disc(input_tokens, [0.5, 0.9, 0.99]) AS "Tokens in",
    quantile_disc(output_tokens, [0.5, 0.9, 0.99]) AS "Tokens out"
FROM segments.rollouts WHERE run_id = $run_id
"""
_REWARDS = """
WITH seen AS (
    SELECT reward, count(*) AS count FROM segments.rollouts
    WHERE run_id = $run_id AND isfinite(reward) GROUP BY reward
),
span AS (SELECT min(reward) AS low, (max(reward) - min(reward)) / $bars AS width, count(*) AS kinds FROM seen)
SELECT
    CASE
        WHEN kinds <= $kinds THEN reward
        ELSE low + width * least(floor((reward - low) / width + 1e-9), $bars - 1)
    END AS low,
    CASE WHEN any_value(kinds) <= $kinds THEN 0 ELSE any_value(width) END AS width,
    sum(count)::BIGINT AS count, min(reward) AS lowest, max(reward) AS highest
FROM seen, span GROUP BY 1 ORDER BY 1
"""
_OUTCOMES = """
SELECT outcome_of(error, error_chain, stop_condition, is_truncated) AS outcome, count(*) AS count
FROM segments.rollouts WHERE run_id = $run_id GROUP BY ALL ORDER BY count DESC, outcome
"""
TOGETHER = f"""
SELECT
    (SELECT list(found) FROM ({_ERRORS}) AS found) AS errors,
    (SELECT list(found) FROM ({_REWARDS}) AS found) AS rewards,
    (SELECT found FROM ({_SPREADS}) AS found) AS spreads,
    (SELECT list(found) FROM ({_OUTCOMES}) AS found) AS outcomes
"""  # noqa: S608 - built from constants
"""One row: ``errors``, ``rewards``, ``spreads`` and ``outcomes``, for ``$run_id``, ``$bars`` and ``$kinds``."""
BARS, KINDS = 20, 12
"""Number of ranges of rewards, if a run has more than ``KINDS`` different rewards."""


def ending(stop_condition: str | None, turns: int) -> str | None:
    """Returns the stop condition of a rollout; None if it only says that the one turn of the environment is over."""
    return None if stop_condition == "max_turns_reached" and turns <= 1 else stop_condition


@dataclass(frozen=True)
class Failure:
    """Errors of one kind. ``first`` has ``example_id``, ``rollout_index`` and ``message`` of the first rollout."""

    kind: FailureClass
    chain: str
    phase: str | None
    count: int
    first: Mapping[str, Any]


def failures_of(rows: list[dict[str, Any]]) -> list[Failure]:
    return [Failure(failure_class(f"{row['chain']}: {row['first']['message'] or ''}"), **row) for row in rows]
