"""Takes text with SQL apart: where one statement ends and the next begins, by DuckDB's own reading of it."""

from __future__ import annotations

from contextlib import closing

import duckdb

from nightjar.warehouse.database import explained


def split_statements(text: str) -> list[str]:
    """Returns the statements that semicolons separate; none for blanks and comments.

    Raises:
        WarehouseError: the text is no SQL.

    Example:
        >>> split_statements("FROM runs; SELECT ';' -- the end;")
        ['FROM runs;', "SELECT ';' -- the end;"]
    """
    with explained("The SQL cannot be read"), closing(duckdb.connect(":memory:")) as connection:
        return [statement.query.strip() for statement in connection.extract_statements(text)]


def is_finished(text: str) -> bool:
    """Says whether the last thing in a text, comments aside, is the semicolon that ends a statement.

    Example:
        >>> is_finished("FROM runs; -- all"), is_finished("SELECT ';"), is_finished("FROM runs")
        (True, False, False)
    """
    written = text.encode()
    tokens = [start for start, kind in duckdb.tokenize(text) if kind is not duckdb.token_type.comment]
    return bool(tokens) and written[tokens[-1] : tokens[-1] + 1] == b";"


def is_keyword(word: str) -> bool:
    """Says whether a word is SQL's own, as one that begins a statement is.

    Example:
        >>> is_keyword("select"), is_keyword("leaderboard")
        (True, False)
    """
    return [kind for _, kind in duckdb.tokenize(word)][:1] == [duckdb.token_type.keyword]
