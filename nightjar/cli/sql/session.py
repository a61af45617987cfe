"""``SqlSession``: asks the warehouse and prints the answer, for the command, for a pipe and for the prompt."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from nightjar.cli.sql.format import Format
from nightjar.cli.sql.output import output_file, print_parquet, print_rows
from nightjar.errors import WarehouseError
from nightjar.warehouse import QueryResult, Warehouse
from nightjar.warehouse.reading.known_values import require_known
from nightjar.warehouse.reading.named_queries import Question, is_name, question
from nightjar.warehouse.reading.statements import parameter_names, require_places, split_statements, type_advice

if TYPE_CHECKING:
    import pyarrow as pa

Answer = TypeVar("Answer")


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
        asked = question(text, given)
        start = time.perf_counter()
        if self.format is Format.PARQUET:
            table = self._ask(self.warehouse.query_arrow, asked)
            self._report(asked, table.num_rows, time.perf_counter() - start, lambda: self._write_parquet(table))
        else:
            result = self._ask(self.warehouse.query, asked)
            is_full = asked.query is not None and asked.query.is_full
            self._report(
                asked, len(result.rows), time.perf_counter() - start, lambda: self.show(result, is_full=is_full)
            )

    def show(self, result: QueryResult, *, is_full: bool = False) -> None:
        """Prints rows that are there already.

        Args:
            result: the rows.
            is_full: a table on a terminal shows all of every cell, also where the session does not.

        Raises:
            ConfigError: the file cannot be written.
        """
        is_full = is_full or self.is_full
        if self.output is None:
            print_rows(result, self.format, sys.stdout, is_full=is_full)
            return
        with output_file(self.output) as file, io.TextIOWrapper(file, "utf-8", newline="\n") as stream:
            print_rows(result, self.format, stream, is_full=is_full)

    def _ask(self, ask: Callable[..., Answer], asked: Question) -> Answer:
        try:
            return ask(asked.sql, asked.parameters, timeout_seconds=self.timeout_seconds)
        except WarehouseError as error:
            if advice := type_advice(error, asked.parameters or {}):
                raise WarehouseError(f"{str(error).removesuffix('.')}.{advice}") from error
            raise

    def _write_parquet(self, table: pa.Table) -> None:
        if self.output is None:
            print_parquet(table, sys.stdout.buffer)
            return
        with output_file(self.output) as file:
            print_parquet(table, file)

    def _report(self, asked: Question, count: int, seconds: float, write: Callable[[], None]) -> None:
        if not count:
            require_known(asked, self.warehouse.query)
        write()
        sys.stdout.flush()
        where = f", written to {self.output}" if self.output else ""
        typer.echo(f"{_counted(count)} in {seconds:.2f} s{where}", err=True)


def _counted(count: int) -> str:
    return {0: "No rows", 1: "1 row"}.get(count, f"{count:,} rows")


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
    statements = split_statements(text)
    if len(statements) > 1 and (session.output or session.format is Format.PARQUET):
        raise typer.BadParameter(f"A file takes the rows of one statement, found {len(statements)}")
    require_places(given, parameter_names(text) or frozenset())
    for number, statement in enumerate(statements, start=1):
        if number > 1 and session.format is not Format.JSON:
            typer.echo()
        names = parameter_names(statement) or frozenset()
        try:
            session.answer(statement, {name: value for name, value in given.items() if name.lower() in names})
        except WarehouseError as error:
            if len(statements) == 1:
                raise
            raise WarehouseError(f"Statement {number} of {len(statements)}: {error}") from error
