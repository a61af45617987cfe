"""``SqlSession``: asks the warehouse and prints the answer, for the command, for a pipe and for the prompt."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nightjar.cli.sql.output import Format, print_rows
from nightjar.cli.terminal import echo
from nightjar.errors import WarehouseError
from nightjar.warehouse import QueryResult, Warehouse
from nightjar.warehouse.reading.known_values import require_known
from nightjar.warehouse.reading.named_queries import Question, is_name, question
from nightjar.warehouse.reading.statements import require_fitting, require_places, type_advice

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class SqlSession:
    """How questions are asked and answers are printed.

    Attributes:
        warehouse: what is asked.
        format: how rows are printed.
        timeout_seconds: how long a query may run.
        is_full: whether a table on a terminal shows all of every cell and all rows.
        output: file to write to; None for stdout.
    """

    warehouse: Warehouse
    format: Format
    timeout_seconds: float
    is_full: bool = False
    output: Path | None = None

    def answer(self, text: str, given: Mapping[str, object] | None = None) -> None:
        """Runs a statement, or the named query where the text is one word, and prints rows and their number.

        Raises:
            WarehouseError: the query fails, no query has this name, or it is about what the warehouse does not have.
            ConfigError: the file cannot be written.
        """
        asked, start = question(text, given), time.perf_counter()
        rows = self._ask(asked)
        count = len(rows.rows) if isinstance(rows, QueryResult) else rows.num_rows
        seconds = time.perf_counter() - start
        if not count:
            require_known(asked, self.warehouse.query)
        self.show(rows, is_full=asked.query is not None and asked.query.is_full)
        counted = {0: "No rows", 1: "1 row"}.get(count, f"{count:,} rows")
        where = f", written to {self.output}" if self.output else ""
        echo(f"{counted} in {seconds:.2f} s{where}", err=True)

    def show(self, rows: QueryResult | pa.Table, *, is_full: bool = False) -> None:
        """Prints rows that are there already; ``is_full`` shows all of them, also where the session does not."""
        print_rows(rows, self.format, self.output, is_full=is_full or self.is_full)

    def _ask(self, asked: Question) -> QueryResult | pa.Table:
        ask = self.warehouse.query_arrow if self.format is Format.PARQUET else self.warehouse.query
        try:
            return ask(asked.sql, asked.parameters, timeout_seconds=self.timeout_seconds)
        except WarehouseError as error:
            self._check_values(asked, error)
            if advice := type_advice(error, asked.parameters or {}):
                raise WarehouseError(f"{str(error).removesuffix('.')}.{advice}") from error
            raise

    def _check_values(self, asked: Question, error: WarehouseError) -> None:
        """Says what is wrong with the values of a statement that DuckDB has refused, where that is it."""
        if asked.query is not None or error.__cause__ is None or not (asked.parameters or "$" in asked.sql):
            return
        try:
            statements = self.warehouse.statements(asked.sql, timeout_seconds=self.timeout_seconds)
        except WarehouseError:
            return
        require_fitting(asked.parameters or (), frozenset().union(*(statement.names for statement in statements)))


def checked_seconds(seconds: float) -> float:
    """Returns how long a query may run; ``typer.BadParameter`` for what is no length of time."""
    if not 0 < seconds < math.inf:
        raise typer.BadParameter(f"must be more than 0 seconds, found {seconds}")
    return seconds


def answer_each(session: SqlSession, text: str, given: Mapping[str, object]) -> None:
    """Answers the statements of a text one after the other, up to the first that fails.

    Args:
        session: asks and prints.
        text: named query, or statements that semicolons separate.
        given: values; each statement gets those that it has a place for.

    Raises:
        WarehouseError: the text is no SQL, a value has no place anywhere, or a statement fails; the message says which.
        typer.BadParameter: a file was to take the rows of several statements.
        ConfigError: the file cannot be written.
    """
    if is_name(text):
        session.answer(text, given)
        return
    statements = session.warehouse.statements(text, timeout_seconds=session.timeout_seconds)
    if len(statements) > 1 and (session.output or session.format is Format.PARQUET):
        raise typer.BadParameter(f"A file takes the rows of one statement, found {len(statements)}")
    require_places(given, frozenset().union(*(statement.names for statement in statements)))
    for number, statement in enumerate(statements, start=1):
        if number > 1 and session.format is not Format.JSON:
            echo()
        try:
            session.answer(statement.text, {name: given[name] for name in given if name.lower() in statement.names})
        except WarehouseError as error:
            if len(statements) == 1:
                raise
            raise WarehouseError(f"Statement {number} of {len(statements)}: {error}") from error
