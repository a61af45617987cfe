"""Tells a query that has nothing to answer from one that was asked about something the warehouse does not have."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from nightjar.errors import WarehouseError
from nightjar.warehouse.reading.named_queries import Question
from nightjar.warehouse.reading.result import QueryResult

_KNOWN = {
    "environment": "SELECT DISTINCT env_id FROM runs ORDER BY env_id",
    "model": "SELECT DISTINCT model FROM runs ORDER BY model",
    "run": "SELECT run_id FROM runs ORDER BY started_at DESC NULLS LAST, run_id",
}
"""Asks for all values of a type."""

_MOST_SHOWN = 12
_MOST_NEAR = 3

Ask = Callable[[str], QueryResult]


def known_values(kind: str, ask: Ask) -> list[str]:
    """Returns what there is of a type of parameters: environments, models, or runs, the newest first; else nothing.

    Args:
        kind: the type.
        ask: runs a statement on the warehouse.
    """
    return [str(value) for (value,) in ask(_KNOWN[kind]).rows if value is not None] if kind in _KNOWN else []


def require_known(asked: Question, ask: Ask) -> None:
    """Checks that the warehouse has what a named query was asked about; for one that gave no rows.

    Args:
        asked: the question; of a statement that somebody wrote nothing is checked.
        ask: runs a statement on the warehouse.

    Raises:
        WarehouseError: it has no such environment, model or run; the message names what comes near.
    """
    if asked.query is None or asked.parameters is None:
        return
    for parameter in asked.query.parameters:
        value = asked.parameters[parameter.name]
        if parameter.type in _KNOWN and value is not None:
            _require(parameter.type, str(value), known_values(parameter.type, ask))


def nearest(value: str, known: Sequence[str]) -> list[str]:
    """Returns what may have been meant: what has the value in it or begins it, then what is spelt like it.

    Example:
        >>> nearest("gpt-4.1", ["meta/llama", "openai/gpt-4.1", "openai/gpt-4.1-mini"])
        ['openai/gpt-4.1', 'openai/gpt-4.1-mini']
        >>> nearest("outputs/evals/gsm8k--m/af9fe193abad/", ["1489c10aac35", "af9fe193abad"])
        ['af9fe193abad']
    """
    typed = value.lower()
    last = typed.rstrip("/").rpartition("/")[2]
    within = [one for one in known if typed and (typed in one.lower() or one.lower() == last)]
    small = {one.lower(): one for one in reversed(known)}
    spelt = [small[one] for one in difflib.get_close_matches(typed, small, n=_MOST_NEAR)]
    return list(dict.fromkeys([*within, *spelt]))[:_MOST_NEAR]


def _require(kind: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise WarehouseError(f"Unknown {kind} {value!r}. {_choices(kind, value, known)}")


def _choices(kind: str, value: str, known: Sequence[str]) -> str:
    if not known:
        return "The warehouse has no runs."
    if near := nearest(value, known):
        return f"Did you mean {' or '.join(map(repr, near))}?"
    if len(known) <= _MOST_SHOWN:
        return f"Choose one of: {', '.join(known)}."
    newest = "the newest" if kind == "run" else "some"
    return f"There are {len(known):,}, {newest} are: {', '.join(known[:_MOST_NEAR])}."
