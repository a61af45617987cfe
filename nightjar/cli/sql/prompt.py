"""The prompt of ``nightjar sql``: SQL until a semicolon, dot commands, history and completion.

Every query sees the runs published so far. Ctrl-C stops a query in progress, or discards the input; Ctrl-D quits.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from textwrap import shorten

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_done
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from nightjar.cli.sql.input import COMMANDS, USAGES, command_of, goes_on, is_whole, take_apart, values_of
from nightjar.cli.sql.output import PROMPT_FORMATS, Format
from nightjar.cli.sql.session import (
    SqlSession,
    answer_each,
    checked_seconds,
    only_table,
    print_catalog,
    print_entries,
    print_queries,
)
from nightjar.cli.terminal import echo
from nightjar.core.home import home
from nightjar.core.text import counted
from nightjar.errors import ConfigError, NightjarError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.known_values import known_values
from nightjar.warehouse.reading.named_queries import find_query, named_queries

_PROMPT = "nightjar> "
_LONGEST_QUOTE = 60
_HOW_IT_ENDS = "end the statement with ; or discard it with Ctrl-C"
_WORDS = """
    SELECT keyword_name AS word, 'keyword' AS kind FROM duckdb_keywords()
    UNION ALL
    SELECT DISTINCT function_name, 'function' FROM duckdb_functions() WHERE function_name ~ '^[a-z][a-z0-9_]*$'
"""
_OF_A_TABLE = re.compile(r"(\w+)\.(\w*)$")
_AFTER_FROM = re.compile(r"\b(?:from|join|describe|summarize)\s+(\w*)$", re.IGNORECASE)
Meanings = Mapping[str, str]


class SqlPrompt:
    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def run(self) -> None:
        """Answers the input until the user quits; raises ``WarehouseError`` if there is no warehouse."""
        session = self._session
        runs = session.warehouse.query("SELECT count(*) FROM runs").rows[0][0]
        echo(f"{counted(runs, 'run')}. A statement ends with ';'. Tab completes, .help lists commands, Ctrl-D quits.")
        prompt = self._prompt_session()
        while True:
            try:
                text = prompt.prompt(_PROMPT)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if not self._answer_all(text):
                return

    def _prompt_session(self) -> PromptSession[str]:
        hint = AfterInput(_HOW_IT_ENDS, style="class:auto-suggestion")
        waits = Condition(lambda: not session.default_buffer.text.rpartition("\n")[2].strip())
        is_waiting = Condition(lambda: goes_on(session.default_buffer.text)) & waits & ~is_done
        session: PromptSession[str] = PromptSession(
            multiline=Condition(lambda: goes_on(session.default_buffer.text)),
            prompt_continuation=lambda width, _number, _is_wrap: f"{'...> ':>{width}}",
            lexer=PygmentsLexer(SqlLexer),
            completer=SqlCompleter(self._session.warehouse),
            complete_while_typing=False,
            complete_in_thread=True,
            auto_suggest=AutoSuggestFromHistory(),
            history=_open_history(),
            input_processors=[ConditionalProcessor(hint, is_waiting)],
        )
        return session

    def _answer_all(self, text: str) -> bool:
        """Answers the input up to the first error, and returns whether the user stays."""
        parts = take_apart(text)
        for number, part in enumerate(parts, start=1):
            if number < len(parts) and not is_whole(part):
                echo(f"Discarded, as its ';' is missing: {_quote(part)}", err=True)
                continue
            command = command_of(part)
            if command == ".quit":
                return False
            if not self._answer(command or part) and number < len(parts):
                echo(f"The following input was not run: {_quote(parts[number])}", err=True)
                break
        return True

    def _answer(self, part: str) -> bool:
        try:
            if part.startswith((".", "\\")):
                self._command(part)
            else:
                answer_each(self._session, part, {})
        except (NightjarError, typer.BadParameter) as error:
            echo(f"Error: {error}", err=True)
        except KeyboardInterrupt:
            echo("Stopped.", err=True)
        else:
            return True
        return False

    def _command(self, text: str) -> None:
        try:
            name, arguments = text.split(maxsplit=1)[0].lower(), shlex.split(text)[1:]
        except ValueError as error:
            raise ConfigError(f"Cannot read {text!r}: {error}") from error
        if name not in COMMANDS:
            raise ConfigError(f"Unknown command {name!r}. Choose one of: {', '.join(COMMANDS)}")
        if not (self._show([name, *arguments]) or self._set([name, *arguments])):
            [usage] = [usage for usage in USAGES if usage.partition(" ")[0] == name]
            raise ConfigError(f"Usage: {usage}")

    def _show(self, words: list[str]) -> bool:
        warehouse = self._session.warehouse
        match words:
            case [".tables"]:
                print_entries({table: [about or ""] for table, about, *_ in warehouse.catalog().rows})
            case [".schema"]:
                print_catalog(warehouse.catalog())
            case [".schema", table]:
                print_catalog(only_table(warehouse.catalog(), table))
            case [".queries"]:
                print_queries(named_queries().values())
            case [".queries", name]:
                echo(find_query(name).text, nl=False)
            case [".run", name, *pairs]:
                self._session.answer(find_query(name).name, values_of(pairs))
            case [".help"]:
                print_entries({usage: [about] for usage, about in USAGES.items()})
                echo("Anything else is SQL and ends with ';'. A command on its own line discards unfinished SQL.")
                echo("Ctrl-C stops a query. Ctrl-R searches the history.")
            case _:
                return False
        return True

    def _set(self, words: list[str]) -> bool:
        match words:
            case [".format", chosen] if chosen in PROMPT_FORMATS:
                self._session.format = Format(chosen)
                said = f"Rows are printed as {chosen}."
            case [".full", "on"]:
                self._session.is_full = True
                said = "All rows and whole cells are shown."
            case [".full", "off"]:
                self._session.is_full = False
                said = "Rows and cells are shortened."
            case [".timeout", text] if seconds := _seconds(text):
                self._session.timeout_seconds = seconds
                said = f"The time limit of a query is {seconds:g} s."
            case _:
                return False
        echo(said, err=True)
        return True


def _seconds(text: str) -> float | None:
    try:
        return checked_seconds(float(text))
    except (ValueError, typer.BadParameter):
        return None


def _open_history() -> History:
    """Keeps the history in a file that only its owner can read, or in memory if the file cannot be written."""
    try:
        path = home() / "sql_history"
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.open("ab").close()
    except (OSError, ConfigError) as error:
        echo(f"History is not kept: {error}", err=True)
        return InMemoryHistory()
    return FileHistory(path)


def _quote(part: str) -> str:
    return shorten(" ".join(part.split()), _LONGEST_QUOTE, placeholder="…")


class SqlCompleter(Completer):
    """Completes SQL with the catalog of a warehouse, which is read once, on first use."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
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
    """Returns the table that a name refers to: itself, or an alias as in ``FROM table [AS] name``."""
    for table in tables:
        if re.search(rf"\b{re.escape(table)}\s+(?:as\s+)?{name}\b", text, re.IGNORECASE):
            return table
    return name.lower()
