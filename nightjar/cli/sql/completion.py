"""Completes what is typed at the prompt: tables, columns, keywords, functions, named queries and dot commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from nightjar.cli.sql.format import Format
from nightjar.warehouse.reading.known_values import known_values
from nightjar.warehouse.reading.named_queries import NamedQuery, named_queries

if TYPE_CHECKING:
    from nightjar.warehouse import Warehouse

_WORDS = """
    SELECT keyword_name AS word, 'keyword' AS kind FROM duckdb_keywords()
    UNION ALL
    SELECT DISTINCT function_name, 'function' FROM duckdb_functions() WHERE function_name ~ '^[a-z][a-z0-9_]*$'
"""
_OF_A_TABLE = re.compile(r"(\w+)\.(\w*)$")
_AFTER_FROM = re.compile(r"\b(?:from|join|describe|summarize)\s+(\w*)$", re.IGNORECASE)
_LAST_WORD = re.compile(r"\w*$")

Meanings = Mapping[str, str]
"""What can be typed, and what it is."""


@dataclass(frozen=True)
class _Names:
    columns: Mapping[str, Meanings]
    tables: Meanings
    words: Meanings


class SqlCompleter(Completer):
    """Completes SQL by the catalog of a warehouse.

    Args:
        warehouse: is asked once, when it is first needed.
        commands: the dot commands and what they do.
    """

    def __init__(self, warehouse: Warehouse, commands: Meanings) -> None:
        self._warehouse = warehouse
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        """Yields what may stand where the cursor is."""
        before = document.text_before_cursor
        line = before.rpartition("\n")[2]
        if line.partition(" ")[0] in named_queries() and " " in line:
            line = f".run {line}"
        typed, found = self._command_words(line) if line.startswith(".") else self._sql_words(before, document.text)
        for word, meaning in found:
            if word.lower().startswith(typed.lower()):
                yield Completion(word, start_position=-len(typed), display_meta=meaning)

    def _command_words(self, before: str) -> tuple[str, Iterable[tuple[str, str]]]:
        *earlier, typed = before.split(" ")
        if not earlier:
            return typed, self._commands.items()
        if earlier[0] == ".run" and len(earlier) > 1:
            return typed, self._parameters(named_queries().get(earlier[1]), typed)
        choices: dict[str, Meanings] = {
            ".run": _query_names(),
            ".queries": _query_names(),
            ".schema": self._names.tables,
            ".format": {one.value: "" for one in Format if one is not Format.PARQUET},
            ".full": {"on": "", "off": ""},
        }
        return typed, choices.get(earlier[0], {}).items()

    def _parameters(self, query: NamedQuery | None, typed: str) -> list[tuple[str, str]]:
        """What a query can be told: names, and behind a name what the warehouse has."""
        parameters = {f"{one.name}=": one for one in query.parameters} if query else {}
        for name, parameter in parameters.items():
            if typed.startswith(name):
                values = known_values(parameter.type, self._warehouse.query)
                return [(shlex.quote(f"{name}{value}"), parameter.about) for value in values]
        return [(name, parameter.about) for name, parameter in parameters.items()]

    def _sql_words(self, before: str, text: str) -> tuple[str, Iterable[tuple[str, str]]]:
        names = self._names
        if after_dot := _OF_A_TABLE.search(before):
            table = _alias(after_dot[1], text, names.tables)
            return after_dot[2], names.columns.get(table, {}).items()
        if after_from := _AFTER_FROM.search(before):
            return after_from[1], names.tables.items()
        last = _LAST_WORD.search(before)
        typed = last[0] if last else ""
        if not typed:
            return typed, []
        queries = _query_names() if before.strip() == typed else {}
        near = {
            name: f"of {table}" for table in names.columns if _mentions(text, table) for name in names.columns[table]
        }
        far = {name: f"of {table}" for table in names.columns for name in names.columns[table]}
        found: dict[str, str] = {}
        for meanings in (queries, near, names.tables, far, names.words):
            found = {**found, **{word: meaning for word, meaning in meanings.items() if word not in found}}
        return typed, found.items()

    @cached_property
    def _names(self) -> _Names:
        columns: dict[str, dict[str, str]] = {}
        tables: dict[str, str] = {"flips(": "examples whose outcome differs between two runs"}
        for table, about, column, kind, note in self._warehouse.catalog().rows:
            tables[table] = about or ""
            columns.setdefault(table, {})[column] = f"{kind}  {note or ''}".strip()
        words = {word.upper() if kind == "keyword" else word: kind for word, kind in self._warehouse.query(_WORDS).rows}
        return _Names(columns, tables, dict(sorted(words.items())))


def _query_names() -> Meanings:
    return {query.name: query.about for query in named_queries().values()}


def _mentions(text: str, table: str) -> bool:
    return re.search(rf"\b{table}\b", text, re.IGNORECASE) is not None


def _alias(name: str, text: str, tables: Iterable[str]) -> str:
    """The table that a name in the text stands for: itself, or ``FROM table [AS] name``."""
    for table in tables:
        if re.search(rf"\b{re.escape(table)}\s+(?:as\s+)?{name}\b", text, re.IGNORECASE):
            return table
    return name.lower()
