"""What a line at the prompt of ``nightjar sql`` begins like: a statement, or a named query with its values.

A query is called as in the shell or without its option: ``hardest -P env=gsm8k``, ``hardest env=gsm8k``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache

from nightjar.errors import ConfigError, WarehouseError

_FIRST_WORD = re.compile(r"\s*([^\W\d][\w-]*)")
_OPTION = re.compile(r"^(?:-P|--parameter)=?")


def begins_no_statement(line: str) -> bool:
    """Says whether a line begins with a word that begins no statement of DuckDB's.

    Example:
        >>> begins_no_statement("hardset env=gsm8k"), begins_no_statement("FROM runs")
        (True, False)
    """
    first = _FIRST_WORD.match(line)
    return first is not None and not _begins_statement(first[1].lower())


def is_call(line: str) -> bool:
    """Says whether a line is a named query with its values, or meant as one: the name may be wrong, or a value.

    Example:
        >>> is_call("hardest -P env=gsm8k"), is_call("hardset 5"), is_call("SELCT a = 1"), is_call("FROM runs")
        (True, True, False, False)
    """
    from nightjar.warehouse.reading.named_queries import named_queries

    name, *rest = line.removesuffix(";").split() or [""]
    if not rest or not begins_no_statement(line):
        return False
    is_near = bool(difflib.get_close_matches(name.lower(), named_queries(), n=1))
    return is_near or rest[0] in {"-P", "--parameter"} or re.match(r"\w+=", rest[0]) is not None


def values_of(arguments: Sequence[str]) -> dict[str, str]:
    """Reads the values of a call; ``-P`` before each may be left out.

    Raises:
        ConfigError: one has no name.

    Example:
        >>> values_of(["-P", "env=gsm8k", "limit=5"])
        {'env': 'gsm8k', 'limit': '5'}
    """
    pairs = [pair for argument in arguments if (pair := _OPTION.sub("", argument))]
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise ConfigError(f"Expected PARAMETER=VALUE, found {wrong[0]!r}")
    return {name.removeprefix("$"): value for name, _, value in (pair.partition("=") for pair in pairs)}


@lru_cache(maxsize=1024)
def _begins_statement(word: str) -> bool:
    """Asks DuckDB, which names the first word it has no use for: this one, or the parenthesis behind it."""
    from nightjar.warehouse.reading.statements import split_statements

    try:
        split_statements(f"{word} )")
    except WarehouseError as error:
        return str(error).endswith('at or near ")"')
    return True
