"""Completes what is typed at the prompt: tables, columns, keywords, functions, named queries and dot commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from nightjar.cli.sql.input import COMMANDS
from nightjar.cli.sql.output import PROMPT_FORMATS
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.known_values import known_values
from nightjar.warehouse.reading.named_queries import named_queries

_WORDS = """
    SELECT keyword_name AS word, 'keyword' AS kind FROM duckdb_keywords()
    UNION ALL
    SELECT DISTINCT function_name, 'function' FROM duckdb_functions() WHERE function_name ~ '^[a-z][a-z0-9_]*$'
"""
_OF_A_TABLE = re.compile(r"(\w+)\.(\w*)$")
_AFTER_FROM = re.compile(r"\b(?:from|join|describe|summarize)\s+(\w*)$", re.IGNORECASE)

Meanings = Mapping[str, str]
"""What can be typed, and what it is."""


class SqlCompleter(Completer):
    """Completes SQL by the catalog of a warehouse, which is asked once, when it is first needed."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        """Yields what may stand where the cursor is."""
        before = document.text_before_cursor
        line = before.rpartition("\n")[2]
        if line.partition(" ")[0] in named_queries() and " " in line:
            line = f".run {line}"
        typed, found = self._command_words(line) if line.startswith(".") else self._sql_words(before, document.text)
        for word, meaning in found.items():
            if word.lower().startswith(typed.lower()):
                yield Completion(word, start_position=-len(typed), display_meta=meaning)

    def _command_words(self, before: str) -> tuple[str, Meanings]:
        *earlier, typed = before.split(" ")
        found: Meanings = {}
        match earlier:
            case []:
                found = COMMANDS
            case [".run", name, *_]:
                found = self._parameters(name, typed)
            case [".run" | ".queries"]:
                found = _query_names()
            case [".schema"]:
                found = self._tables
            case [".format"]:
                found = dict.fromkeys(PROMPT_FORMATS, "")
            case [".full"]:
                found = {"on": "", "off": ""}
        return typed, found

    def _parameters(self, query: str, typed: str) -> Meanings:
        """What a query can be told: names, and behind a name what the warehouse has."""
        known = named_queries().get(query)
        parameters = {f"{one.name}=": one for one in known.parameters} if known else {}
        for name, parameter in parameters.items():
            if typed.startswith(name):
                values = known_values(parameter.type, self._warehouse.query)
                return {shlex.quote(f"{name}{value}"): parameter.about for value in values}
        return {name: parameter.about for name, parameter in parameters.items()}

    def _sql_words(self, before: str, text: str) -> tuple[str, Meanings]:
        if after_dot := _OF_A_TABLE.search(before):
            return after_dot[2], self._columns.get(_alias(after_dot[1], text, self._columns), {})
        if after_from := _AFTER_FROM.search(before):
            return after_from[1], self._tables
        typed = re.split(r"\W", before)[-1]
        if not typed:
            return typed, {}
        queries = _query_names() if before.strip() == typed else {}
        near = sorted(self._columns, key=lambda table: re.search(rf"\b{table}\b", text, re.IGNORECASE) is None)
        columns = [dict.fromkeys(self._columns[table], f"of {table}") for table in near]
        found: Meanings = {}
        for meanings in (queries, *columns, self._tables, self._words):
            found = {**found, **meanings, **found}
        return typed, found

    @cached_property
    def _catalog(self) -> list[tuple[str, ...]]:
        return self._warehouse.catalog().rows

    @cached_property
    def _tables(self) -> Meanings:
        tables = {table: about or "" for table, about, *_ in self._catalog}
        return {"flips(": "examples whose outcome differs between two runs", **tables}

    @cached_property
    def _columns(self) -> Mapping[str, Meanings]:
        """Table to column to what the column is."""
        columns: dict[str, dict[str, str]] = {}
        for table, _, column, kind, note in self._catalog:
            columns.setdefault(table, {})[column] = f"{kind}  {note or ''}".strip()
        return columns

    @cached_property
    def _words(self) -> Meanings:
        words = self._warehouse.query(_WORDS).rows
        return dict(sorted((word.upper() if kind == "keyword" else word, kind) for word, kind in words))


def _query_names() -> Meanings:
    return {query.name: query.about for query in named_queries().values()}


def _alias(name: str, text: str, tables: Iterable[str]) -> str:
    """The table that a name in the text stands for: itself, or ``FROM table [AS] name``."""
    for table in tables:
        if re.search(rf"\b{re.escape(table)}\s+(?:as\s+)?{name}\b", text, re.IGNORECASE):
            return table
    return name.lower()
