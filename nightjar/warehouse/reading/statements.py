"""Takes text with SQL apart, by DuckDB's own reading of it: its statements, and the ``$name`` they take values for.

A value is read as it would be read in quotes: DuckDB gives it the type of what it stands beside. So ``10`` is a number
in ``LIMIT $n`` and in ``reward > $x``, a time is one in ``started_at > $t``, and what is compared with text stays
text, digits or not. Where nothing beside it has a type (``to_days($n)``, ``reward * $x``), DuckDB refuses to guess,
and the statement says what it is: ``$n::INTEGER``.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass

from nightjar.errors import WarehouseError


@dataclass(frozen=True)
class WrittenStatement:
    """A statement of a text.

    Attributes:
        text: with its semicolon.
        names: of what it takes, in small letters.
    """

    text: str
    names: frozenset[str]


def split_statements(text: str) -> list[WrittenStatement]:
    """Returns the statements that semicolons separate; none for blanks and comments.

    Raises:
        WarehouseError: the text is no SQL.

    Example:
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
    """Says whether the last thing in a text, comments aside, is the semicolon that ends a statement.

    Example:
        >>> is_finished("FROM runs; -- all"), is_finished("SELECT ';"), is_finished("FROM runs")
        (True, False, False)
    """
    return unfinished(text) != text


def unfinished(text: str) -> str:
    """Returns a statement without the semicolon that ends it, and what comments follow that: as a part of another.

    Example:
        >>> unfinished("FROM runs; -- all"), unfinished("SELECT ';'")
        ('FROM runs', "SELECT ';'")
    """
    import duckdb

    written = text.encode()
    tokens = [start for start, kind in duckdb.tokenize(text) if kind is not duckdb.token_type.comment]
    is_ended = bool(tokens) and written[tokens[-1] : tokens[-1] + 1] == b";"
    return written[: tokens[-1]].decode() if is_ended else text


def require_fitting(given: Collection[str], names: Collection[str]) -> None:
    """Checks that values are all that a statement takes, and that it takes them.

    Raises:
        WarehouseError: one is missing, or the statement has no place for it.
    """
    require_places(given, names)
    if missing := sorted({*names} - {name.lower() for name in given}):
        raise WarehouseError(f"The statement needs a value for {missing[0]!r}. It takes: {_listed(names)}.")


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


def type_advice(error: WarehouseError, given: Collection[str]) -> str:
    """Says how a value gets a type, where DuckDB could not make sense of a statement with values; else nothing."""
    if not given or type(error.__cause__).__name__ != "BinderException":
        return ""
    types = " or ".join(f"${name}::INTEGER" for name in given)
    return f" Where nothing says a value's type, write it: {types} (or ::DOUBLE, ::DATE, ::TIMESTAMPTZ, ::INTERVAL)."


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "no parameters"
