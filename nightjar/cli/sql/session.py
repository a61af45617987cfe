"""``SqlSession`` queries the warehouse and prints the answer. Other functions list tables and named queries."""

from __future__ import annotations

import difflib
import math
import shutil
import textwrap
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nightjar.cli.sql.output import Format, print_rows
from nightjar.cli.terminal import echo
from nightjar.core.text import counted
from nightjar.errors import WarehouseError
from nightjar.warehouse import QueryResult, Warehouse
from nightjar.warehouse.reading.known_values import require_known
from nightjar.warehouse.reading.named_queries import NamedQuery, Question, is_name, question
from nightjar.warehouse.reading.statements import require_fitting, require_places, type_advice

if TYPE_CHECKING:
    import pyarrow as pa

_NO_RUN = "No run "
"""The beginning of the error of ``pairs`` and ``flips`` for an unknown run."""
_WIDEST = 96
_JOINED = "\0"
"""Replaces the space between a column and its type, so that no line is broken there."""


@dataclass
class SqlSession:
    warehouse: Warehouse
    format: Format
    timeout_seconds: float
    is_full: bool = False
    output: Path | None = None

    def answer(self, text: str, given: Mapping[str, object] | None = None) -> None:
        asked, start = question(text, given), time.perf_counter()
        rows = self._ask(asked)
        count = len(rows.rows) if isinstance(rows, QueryResult) else rows.num_rows
        seconds = time.perf_counter() - start
        if not count:
            require_known(asked, self.warehouse.query)
        self.show(rows, is_full=asked.query is not None and asked.query.is_full)
        where = f", written to {self.output}" if self.output else ""
        found = counted(count, "row") if count else "No rows"
        echo(f"{found} in {seconds:.2f} s{where}", err=True)

    def show(self, rows: QueryResult | pa.Table, *, is_full: bool = False) -> None:
        print_rows(rows, self.format, self.output, is_full=is_full or self.is_full)

    def _ask(self, asked: Question) -> QueryResult | pa.Table:
        ask = self.warehouse.query_arrow if self.format is Format.PARQUET else self.warehouse.query
        try:
            return ask(asked.sql, asked.parameters, timeout_seconds=self.timeout_seconds)
        except WarehouseError as error:
            if _NO_RUN in str(error):
                require_known(asked, self.warehouse.query)
            self._check_values(asked, error)
            if advice := type_advice(error, asked.parameters or {}):
                raise WarehouseError(f"{str(error).removesuffix('.')}.{advice}") from error
            raise

    def _check_values(self, asked: Question, error: WarehouseError) -> None:
        """If DuckDB has refused a statement because of the values for its parameters, raises an error about them."""
        if asked.query is not None or error.__cause__ is None or not (asked.parameters or "$" in asked.sql):
            return
        try:
            statements = self.warehouse.statements(asked.sql, timeout_seconds=self.timeout_seconds)
        except WarehouseError:
            return
        require_fitting(asked.parameters or (), frozenset().union(*(statement.names for statement in statements)))


def checked_seconds(seconds: float) -> float:
    if not 0 < seconds < math.inf:
        raise typer.BadParameter(f"must be more than 0 seconds, found {seconds}")
    return seconds


def answer_each(session: SqlSession, text: str, given: Mapping[str, object]) -> None:
    """Answers a named query, or statements in order up to the first failure. Each gets the values that it uses."""
    if is_name(text):
        session.answer(text, given)
        return
    statements = session.warehouse.statements(text, timeout_seconds=session.timeout_seconds)
    if len(statements) > 1 and (session.output or session.format is Format.PARQUET):
        raise typer.BadParameter(f"A file can hold the rows of one statement only, found {len(statements)} statements")
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


def print_catalog(catalog: QueryResult) -> None:
    for number, (table, rows) in enumerate(groupby(catalog.rows, key=lambda row: row[0])):
        if number:
            echo()
        columns = list(rows)
        about = columns[0][1]
        echo(textwrap.fill(f"{table}: {about}" if about else table, _room(), subsequent_indent="    "))
        names = ", ".join(f"{name} {kind}".replace(" ", _JOINED) for _, _, name, kind, _ in columns)
        lines = textwrap.fill(names, _room(), initial_indent="  ", subsequent_indent="  ", break_long_words=False)
        echo(lines.replace(_JOINED, " "))
        for _, _, name, _, note in columns:
            if note:
                echo(textwrap.fill(f"  * {name}: {note}", _room(), subsequent_indent="    "))


def only_table(catalog: QueryResult, name: str) -> QueryResult:
    """Raises ``WarehouseError`` if the table does not exist."""
    rows = [row for row in catalog.rows if row[0] == name.lower()]
    if not rows:
        names = list(dict.fromkeys(row[0] for row in catalog.rows))
        near = difflib.get_close_matches(name, names) or names
        raise WarehouseError(f"Unknown table {name!r}. Choose one of: {', '.join(near)}")
    return QueryResult(catalog.columns, catalog.types, rows)


def print_entries(entries: Mapping[str, Iterable[str]]) -> None:
    margin = max(map(len, entries), default=0) + 2
    for name, paragraphs in entries.items():
        lines = [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, _room() - margin)]
        for label, line in zip_longest([name], lines, fillvalue=""):
            echo(f"{label:<{margin}}{line}".rstrip())


def print_queries(queries: Iterable[NamedQuery]) -> None:
    print_entries({query.name: [query.about, query.usage] for query in queries})


def query_records(queries: Iterable[NamedQuery]) -> list[dict[str, Any]]:
    return [{"name": query.name, "about": query.about, "parameters": _parameters(query)} for query in queries]


def _parameters(query: NamedQuery) -> list[dict[str, Any]]:
    return [
        {**vars(one), "required": one.default is None, "default": one.read(one.default)} for one in query.parameters
    ]


def _room() -> int:
    return max(40, min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns))
