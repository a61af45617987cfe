"""Values for the ``$name`` of a statement that somebody wrote.

A text is read as it would be read in quotes: DuckDB gives it the type of what it stands beside. So ``10`` is a number
in ``LIMIT $n`` and in ``reward > $x``, a time is one in ``started_at > $t``, and what is compared with text stays
text, digits or not. Where nothing beside it has a type (``to_days($n)``, ``reward * $x``), DuckDB refuses to guess,
and the statement says what it is: ``$n::INTEGER``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import closing

import duckdb

from nightjar.errors import WarehouseError

_UNTYPED = ("STRING_LITERAL", "an explicit cast is required")
"""What DuckDB says of a text that could be of several types."""

_UNDECIDED = "Could not choose a best candidate function for the function call "
_PLACE = re.compile(r"\$(\w+)")


def fitting(sql: str, given: Mapping[str, object]) -> dict[str, object]:
    """Returns the values, when they are all that the statement takes.

    Raises:
        WarehouseError: one is missing, or the statement has no place for it.

    Example:
        >>> fitting("FROM runs LIMIT $n", {"n": "3"})
        {'n': '3'}
    """
    if not given and "$" not in sql:
        return {}
    names = parameter_names(sql)
    require_places(given, _PLACE.findall(sql.lower()) if names is None else names)
    if missing := sorted((names or frozenset()) - {name.lower() for name in given}):
        raise WarehouseError(f"The statement needs a value for {missing[0]!r}. It takes: {_listed(names or ())}.")
    return dict(given)


def require_places(given: Collection[str], names: Collection[str]) -> None:
    """Checks that there is a place for every value.

    Raises:
        WarehouseError: there is none for one of them; the message says how a shell can be to blame.
    """
    if unknown := [name for name in given if name.lower() not in names]:
        raise WarehouseError(
            f"The statement has no parameter {unknown[0]!r}. It takes: {_listed(names)}. "
            f"(In double quotes a shell puts its own ${unknown[0]} there: use single quotes.)"
        )


def parameter_names(sql: str) -> frozenset[str] | None:
    """Returns the names of what a text with SQL takes, in small letters; None when it cannot be read.

    Example:
        >>> sorted(parameter_names("SELECT '$a', $B; SELECT $c -- $d") or [])
        ['b', 'c']
    """
    try:
        with closing(duckdb.connect(":memory:")) as connection:
            statements = connection.extract_statements(sql)
    except (duckdb.Error, TypeError):  # TypeError: half a surrogate pair
        return None
    return frozenset(name.lower() for statement in statements for name in statement.named_parameters)


def with_advice(error: WarehouseError, given: Collection[str]) -> WarehouseError | None:
    """Returns an error that says how a value gets a type; None where that is not what is missing.

    Args:
        error: what came of the statement.
        given: the names of the values that were texts.
    """
    text = str(error)
    if not given or not any(sign in text for sign in _UNTYPED):
        return None
    what, _, rest = text.partition(_UNDECIDED)
    problem = f"{what}a value could be of several types in {rest.split(chr(34))[1]!r}" if rest else text
    types = " or ".join(f"${name}::INTEGER" for name in given)
    problem = problem.replace("STRING_LITERAL", "?")
    return WarehouseError(f"{problem}. Say which: {types} (or ::DOUBLE, ::DATE, ::TIMESTAMPTZ, ::INTERVAL).")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "no parameters"
