"""What there is to ask: the tables with their columns, and the named queries with their parameters."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from itertools import groupby, zip_longest
from typing import Any

from nightjar.cli.terminal import echo
from nightjar.errors import WarehouseError
from nightjar.warehouse import QueryResult
from nightjar.warehouse.reading.named_queries import NamedQuery

_WIDEST = 96
_JOINED = "\0"
"""Stands for a blank within what a line does not end in, a column and its type."""


def print_catalog(catalog: QueryResult) -> None:
    """Prints, for each table, what a row is, the columns, and what is to be known of them."""
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
    """Returns the part of a catalog that is about one table.

    Raises:
        WarehouseError: there is no such table.
    """
    rows = [row for row in catalog.rows if row[0] == name.lower()]
    if not rows:
        names = list(dict.fromkeys(row[0] for row in catalog.rows))
        near = difflib.get_close_matches(name, names) or names
        raise WarehouseError(f"Unknown table {name!r}. Choose one of: {', '.join(near)}")
    return QueryResult(catalog.columns, catalog.types, rows)


def print_entries(entries: Mapping[str, Iterable[str]]) -> None:
    """Prints names, and beside each the paragraphs about it."""
    margin = max(map(len, entries), default=0) + 2
    for name, paragraphs in entries.items():
        lines = [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, _room() - margin)]
        for label, line in zip_longest([name], lines, fillvalue=""):
            echo(f"{label:<{margin}}{line}".rstrip())


def print_queries(queries: Iterable[NamedQuery]) -> None:
    """Prints the named queries: what each answers, and below it its parameters."""
    print_entries({query.name: [query.about, query.usage] for query in queries})


def query_records(queries: Iterable[NamedQuery]) -> list[dict[str, Any]]:
    """Returns the named queries for ``--list --json``."""
    return [{"name": query.name, "about": query.about, "parameters": _parameters(query)} for query in queries]


def _parameters(query: NamedQuery) -> list[dict[str, Any]]:
    return [
        {**vars(one), "required": one.default is None, "default": one.read(one.default)} for one in query.parameters
    ]


def _room() -> int:
    return max(40, min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns))
