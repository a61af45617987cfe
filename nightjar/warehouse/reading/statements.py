"""Takes text with SQL apart, by DuckDB's own reading of it: its statements, and the ``$name`` they take values for.

A value is read as it would be read in quotes: DuckDB gives it the type of what it stands beside. So ``10`` is a number
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
from nightjar.warehouse.database import explained, statements_in

_PLACE = re.compile(r"\$(\w+)")


def split_statements(text: str) -> list[str]:
    """Returns the statements that semicolons separate; none for blanks and comments.

    Raises:
        WarehouseError: the text is no SQL.

    Example:
        >>> split_statements("FROM runs; SELECT ';' -- the end;")
        ['FROM runs;', "SELECT ';' -- the end;"]
    """
    with explained("The SQL cannot be read"), closing(duckdb.connect(":memory:")) as connection:
        return [statement.query.strip() for statement in statements_in(connection, text)]


def is_finished(text: str) -> bool:
    """Says whether the last thing in a text, comments aside, is the semicolon that ends a statement.

    Example:
        >>> is_finished("FROM runs; -- all"), is_finished("SELECT ';"), is_finished("FROM runs")
        (True, False, False)
    """
    written = text.encode()
    tokens = [start for start, kind in duckdb.tokenize(text) if kind is not duckdb.token_type.comment]
    return bool(tokens) and written[tokens[-1] : tokens[-1] + 1] == b";"


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


def type_advice(error: WarehouseError, given: Collection[str]) -> str:
    """Says how a value gets a type, where DuckDB could not make sense of a statement with values; else nothing."""
    if not given or not isinstance(error.__cause__, duckdb.BinderException):
        return ""
    types = " or ".join(f"${name}::INTEGER" for name in given)
    return f" Where nothing says a value's type, write it: {types} (or ::DOUBLE, ::DATE, ::TIMESTAMPTZ, ::INTERVAL)."


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "no parameters"
