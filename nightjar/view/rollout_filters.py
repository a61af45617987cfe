"""Filters of rollouts: a text that they contain, and an SQL condition that people write."""

from __future__ import annotations

import re
from dataclasses import dataclass

TEXT_IN_EXAMPLE = "(contains(lower(answer), lower($q)) OR messages_contain_text(prompt, $q))"
"""A condition on an example: its question or answer contains the text ``$q``."""
_OF_EXAMPLES = f"content_id IN (SELECT content_id FROM segments.examples WHERE {TEXT_IN_EXAMPLE})"  # noqa: S608
# A user's condition stands in two kinds of brackets, so that it must be an expression and cannot close them.
_CONDITION = """(
{condition}
) AND len([
{condition}
]) = 1"""
_WITH_OUTCOME = """(
    SELECT *, outcome_of(error, error_chain, stop_condition, is_truncated) AS outcome FROM segments.rollouts
)"""
_NAMES_TEXTS = re.compile(r"\b(task|prompt|answer|info|tool_defs)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Filtered:
    """A relation of rollouts, and the condition on its rows, as SQL."""

    relation: str
    holds: str

    @classmethod
    def by(cls, text: str | None, condition: str | None) -> Filtered:
        """Returns the rollouts that contain the text ``$q`` and for which a user's condition is true.

        Only a condition on texts of examples uses the view ``rollouts``, which takes several times as long.
        """
        has_texts = bool(condition and _NAMES_TEXTS.search(condition))
        contains = f"(messages_contain_text(completion, $q) OR {TEXT_IN_EXAMPLE if has_texts else _OF_EXAMPLES})"
        conditions = [contains] * bool(text) + [_CONDITION.format(condition=condition)] * bool(condition)
        return cls("rollouts" if has_texts else _WITH_OUTCOME, " AND ".join(conditions) or "true")
