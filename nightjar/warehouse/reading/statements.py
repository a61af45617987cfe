"""Splits text into SQL statements, and checks the values given for their ``$name`` parameters.

A value is a text. DuckDB takes the type of the value from the expression: ``10`` is a number in ``LIMIT $n``. If the
expression has no type (``to_days($n)``), the statement has to name the type: ``$n::INTEGER``.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass

from nightjar.errors import WarehouseError


@dataclass(frozen=True)
class WrittenStatement:
    """A statement in a text, including its semicolon; ``names`` are its parameters in lower case."""

    text: str
    names: frozenset[str]


def split_statements(text: str) -> list[WrittenStatement]:
    """Returns the statements that semicolons separate; none for blanks and comments.

    >>> [(one.text, *one.names) for one in split_statements("FROM runs; SELECT ';', $Model -- the end;")]
    [('FROM runs;',), ("SELECT ';', $Model -- the end;", 'model')]
    """
    import duckdb

    from nightjar.warehouse.database import explained, statements_in

    with explained("The SQL cannot be read"), closing(duckdb.connect(":memory:")) as connection:
        return [
            WrittenStatement(one.query.strip(), frozenset(map(str.lower, one.named_parameters)))
            for one in statements_in(connection, text)
        ]


def is_finished(text: str) -> bool:
    """Returns whether a text ends with the semicolon of a statement; comments after it do not count.

    >>> is_finished("FROM runs; -- all"), is_finished("SELECT ';"), is_finished("FROM runs")
    (True, False, False)
    """
    return unfinished(text) != text


def unfinished(text: str) -> str:
    """Returns a statement without its final semicolon and the comments after it, for use inside another statement.

    >>> unfinished("FROM runs; -- all"), unfinished("SELECT ';'")
    ('FROM runs', "SELECT ';'")
    """
    import duckdb

    written = text.encode()
    tokens = [start for start, kind in duckdb.tokenize(text) if kind is not duckdb.token_type.comment]
    is_ended = bool(tokens) and written[tokens[-1] : tokens[-1] + 1] == b";"
    return written[: tokens[-1]].decode() if is_ended else text


def require_fitting(given: Collection[str], names: Collection[str]) -> None:
    require_places(given, names)
    if missing := sorted({*names} - {name.lower() for name in given}):
        raise WarehouseError(f"The statement needs a value for {missing[0]!r}. It takes: {_listed(names)}.")


def require_places(given: Collection[str], names: Collection[str]) -> None:
    if unknown := [name for name in given if name.lower() not in names]:
        raise WarehouseError(
            f"The statement has no parameter {unknown[0]!r}. It takes: {_listed(names)}. "
            f"(In double quotes a shell replaces ${unknown[0]} by its own variable: use single quotes.)"
        )


def type_advice(error: WarehouseError, given: Collection[str]) -> str:
    if not given or type(error.__cause__).__name__ != "BinderException":
        return ""
    types = " or ".join(f"${name}::INTEGER" for name in given)
    return f" If a value has no known type, write the type: {types} (or ::DOUBLE, ::DATE, ::TIMESTAMPTZ, ::INTERVAL)."


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "no parameters"
