"""The prompt of ``nightjar sql``: SQL over several lines until a semicolon, dot commands, history and completion.

Every query sees what was published meanwhile. Ctrl-C stops a running query, or drops what is typed; Ctrl-D leaves.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.filters import Condition, is_done
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from nightjar.cli.sql.catalog import only_table, print_catalog, print_queries, print_tables
from nightjar.cli.sql.completion import SqlCompleter
from nightjar.cli.sql.format import Format
from nightjar.cli.sql.input import COMMANDS, command_of, goes_on, is_whole, take_apart, values_of
from nightjar.cli.sql.session import SqlSession, answer_each
from nightjar.errors import ConfigError, NightjarError
from nightjar.warehouse.reading.named_queries import find_query, is_name, named_queries

_PROMPT = "nightjar> "
_LONGEST_QUOTE = 60

_HOW_IT_ENDS = "end the statement with ; or drop it with Ctrl-C"

_ARGUMENTS = {
    ".schema": "[TABLE]",
    ".queries": "[NAME]",
    ".run": "NAME [PARAMETER=VALUE ...]",
    ".format": "table|csv|json|markdown",
    ".full": "on|off",
    ".timeout": "SECONDS",
}


class SqlPrompt:
    """Reads statements and commands from a terminal, and answers them."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session
        self._actions: dict[str, Callable[[list[str]], None]] = {
            ".tables": lambda _: print_tables(session.warehouse.catalog()),
            ".schema": self._show_schema,
            ".queries": self._show_queries,
            ".run": self._run_query,
            ".format": self._set_format,
            ".full": self._set_full,
            ".timeout": self._set_timeout,
            ".help": lambda _: _show_help(),
        }

    def run(self) -> None:
        """Answers until the user leaves.

        Raises:
            WarehouseError: there is no warehouse.
        """
        session = self._session
        runs = session.warehouse.query("SELECT count(*) FROM runs").rows[0][0]
        typer.echo(f"{runs:,} runs. A statement ends with ';'. Tab completes, .help lists commands, Ctrl-D leaves.")
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
            completer=SqlCompleter(self._session.warehouse, COMMANDS),
            complete_while_typing=False,
            complete_in_thread=True,
            auto_suggest=AutoSuggestFromHistory(),
            history=open_history(),
            input_processors=[ConditionalProcessor(hint, is_waiting)],
        )
        return session

    def _answer_all(self, text: str) -> bool:
        """Answers what was typed or pasted, up to a mistake; says whether the user stays."""
        parts = take_apart(text)
        for number, part in enumerate(parts, start=1):
            if number < len(parts) and not is_whole(part):
                typer.echo(f"Dropped, for want of a ';': {_quote(part)}", err=True)
                continue
            command = command_of(part)
            if command == ".quit":
                return False
            if not self._answer(command or part) and number < len(parts):
                typer.echo(f"What comes after it was not run: {_quote(parts[number])}", err=True)
                break
        return True

    def _answer(self, part: str) -> bool:
        try:
            if part.startswith((".", "\\")):
                self._obey(part)
            else:
                self._answer_statements(part)
        except NightjarError as error:
            typer.echo(f"Error: {error}", err=True)
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
        else:
            return True
        return False

    def _answer_statements(self, text: str) -> None:
        if is_name(text):
            self._session.answer(text)
        else:
            answer_each(self._session, text, {})

    def _obey(self, text: str) -> None:
        try:
            name, arguments = text.split(maxsplit=1)[0], shlex.split(text)[1:]
        except ValueError as error:
            raise ConfigError(f"Cannot read {text!r}: {error}") from error
        action = self._actions.get(name.lower())
        if action is None:
            raise ConfigError(f"Unknown command {name!r}. Choose one of: {', '.join(COMMANDS)}")
        action(arguments)

    def _show_schema(self, arguments: list[str]) -> None:
        catalog = self._session.warehouse.catalog()
        print_catalog(only_table(catalog, arguments[0]) if arguments else catalog)

    def _show_queries(self, arguments: list[str]) -> None:
        if arguments:
            typer.echo(find_query(arguments[0]).text, nl=False)
        else:
            print_queries(named_queries().values())

    def _run_query(self, arguments: list[str]) -> None:
        if not arguments:
            raise ConfigError(".run takes the name of a query. See .queries")
        query = find_query(arguments[0])
        self._session.answer(query.name, values_of(arguments[1:]))

    def _set_format(self, arguments: list[str]) -> None:
        choices = [one.value for one in Format if one is not Format.PARQUET]
        if len(arguments) != 1 or arguments[0] not in choices:
            raise ConfigError(f".format takes one of: {', '.join(choices)}")
        self._session.format = Format(arguments[0])
        typer.echo(f"Rows are printed as {self._session.format.value}.", err=True)

    def _set_full(self, arguments: list[str]) -> None:
        if arguments not in (["on"], ["off"]):
            raise ConfigError(".full takes on or off")
        self._session.is_full = arguments == ["on"]
        shown = (
            "All rows and all of long cells are" if self._session.is_full else "Many rows and long cells are not all"
        )
        typer.echo(f"{shown} shown.", err=True)

    def _set_timeout(self, arguments: list[str]) -> None:
        try:
            seconds = float(*arguments)
        except (TypeError, ValueError):
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            raise ConfigError(".timeout takes a number of seconds")
        self._session.timeout_seconds = seconds
        typer.echo(f"A query may run for {seconds:g} s.", err=True)


def open_history() -> History:
    """Returns what was typed before, in a file that only its owner reads; nothing where it cannot be written."""
    path = Path(os.environ.get("NIGHTJAR_HOME", "~/.nightjar")).expanduser() / "sql_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.open("ab").close()
    except OSError as error:
        typer.echo(f"History is not kept: cannot write {str(path)!r}: {error.strerror}", err=True)
        return InMemoryHistory()
    return FileHistory(path)


def _quote(part: str) -> str:
    """The beginning of a part, on one line."""
    return shorten(" ".join(part.split()), _LONGEST_QUOTE, placeholder="…")


def _show_help() -> None:
    usages = {f"{name} {_ARGUMENTS.get(name, '')}".rstrip(): about for name, about in COMMANDS.items()}
    width = max(map(len, usages))
    for usage, about in usages.items():
        typer.echo(f"  {usage:<{width}}  {about}")
    typer.echo("Anything else is SQL, until ';' or until a command on a line of its own, which drops it.")
    typer.echo("Ctrl-C stops a query. Ctrl-R searches what was typed before.")
