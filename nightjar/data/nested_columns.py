"""Columns whose values are lists or mappings: in a table, which has nothing but texts, they are written out."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from itertools import pairwise
from tokenize import NL, STRING, TokenError, generate_tokens
from typing import Any

from nightjar.errors import DatasetError
from nightjar.syntax import read_literal

_EXPECTED: Mapping[type, str] = {
    list: 'a list, or the text of one such as ["3", "4"]',
    dict: 'a mapping, or the text of one such as {"a": 1}',
}
_LONGEST = 80


def read_nested(row: dict[str, Any], kinds: Mapping[str, type], place: str) -> dict[str, Any]:
    """Returns a row with the lists and mappings of columns that have them as text; what is empty stays so.

    Args:
        row: of a data set.
        kinds: column to ``list`` or ``dict``; one that the row has not is left out.
        place: where the row is, for the message.

    Raises:
        DatasetError: a column has something else.

    Example:
        >>> read_nested({"choices": '["3", "4"]', "answer": "1"}, {"choices": list}, "sums.csv, row 1")
        {'choices': ['3', '4'], 'answer': '1'}
    """
    found = {column: _read(row[column]) for column in kinds if row.get(column) not in (None, "")}
    for column, value in found.items():
        if not isinstance(value, kinds[column]):
            said = repr(row[column])[:_LONGEST]
            raise DatasetError(f"{place}: {column!r} has to be {_EXPECTED[kinds[column]]}; found {said}")
    return {**row, **found}


def _read(value: Any) -> Any:
    """Returns what a text says in JSON, or as Python writes it, or NumPy a list of texts; else the text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        return read_literal(_with_commas(value))
    except (ValueError, SyntaxError, TokenError, RecursionError, MemoryError):
        return value


def _with_commas(text: str) -> str:
    """Returns a list that NumPy wrote, ``['3' '4']``, with commas; Python would make one text of the two."""
    tokens = [token for token in generate_tokens(io.StringIO(text.strip()).readline) if token.type != NL]
    return " ".join(
        token.string + "," * (token.type == following.type == STRING) for token, following in pairwise(tokens)
    )
