"""The prompt of ``nightjar sql``: SQL over several lines until a semicolon, dot commands, history and completion.

Every query sees what was published meanwhile. Ctrl-C stops a running query, or drops what is typed; Ctrl-D leaves.
"""

from __future__ import annotations

import shlex
from textwrap import shorten

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.filters import Condition, is_done
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from nightjar.cli.sql.catalog import only_table, print_catalog, print_entries, print_queries
from nightjar.cli.sql.completion import SqlCompleter
from nightjar.cli.sql.input import COMMANDS, USAGES, command_of, goes_on, is_whole, take_apart, values_of
from nightjar.cli.sql.output import PROMPT_FORMATS, Format
from nightjar.cli.sql.session import SqlSession, answer_each, checked_seconds
from nightjar.cli.terminal import echo
from nightjar.errors import ConfigError, NightjarError
from nightjar.home import home
from nightjar.warehouse.reading.named_queries import find_query, named_queries

_PROMPT = "nightjar> "
_LONGEST_QUOTE = 60
_HOW_IT_ENDS = "end the statement with ; or drop it with Ctrl-C"


class SqlPrompt:
    """Reads statements and commands from a terminal, and answers them."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def run(self) -> None:
        """Answers until the user leaves; ``WarehouseError`` where there is no warehouse."""
        session = self._session
        runs = session.warehouse.query("SELECT count(*) FROM runs").rows[0][0]
        echo(f"{runs:,} runs. A statement ends with ';'. Tab completes, .help lists commands, Ctrl-D leaves.")
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
        """Answers what was typed or pasted, up to a mistake; says whether the user stays."""
        parts = take_apart(text)
        for number, part in enumerate(parts, start=1):
            if number < len(parts) and not is_whole(part):
                echo(f"Dropped, for want of a ';': {_quote(part)}", err=True)
                continue
            command = command_of(part)
            if command == ".quit":
                return False
            if not self._answer(command or part) and number < len(parts):
                echo(f"What comes after it was not run: {_quote(parts[number])}", err=True)
                break
        return True

    def _answer(self, part: str) -> bool:
        try:
            if part.startswith((".", "\\")):
                self._obey(part)
            else:
                answer_each(self._session, part, {})
        except (NightjarError, typer.BadParameter) as error:
            echo(f"Error: {error}", err=True)
        except KeyboardInterrupt:
            echo("Stopped.", err=True)
        else:
            return True
        return False

    def _obey(self, text: str) -> None:
        try:
            name, arguments = text.split(maxsplit=1)[0].lower(), shlex.split(text)[1:]
        except ValueError as error:
            raise ConfigError(f"Cannot read {text!r}: {error}") from error
        if name not in COMMANDS:
            raise ConfigError(f"Unknown command {name!r}. Choose one of: {', '.join(COMMANDS)}")
        if not (self._show([name, *arguments]) or self._set([name, *arguments])):
            [usage] = [usage for usage in USAGES if usage.partition(" ")[0] == name]
            raise ConfigError(f"Write it as {usage}")

    def _show(self, words: list[str]) -> bool:
        """Obeys a command that asks; False for any other."""
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
                _show_help()
            case _:
                return False
        return True

    def _set(self, words: list[str]) -> bool:
        """Obeys a command that changes how questions are asked or answered; False for any other."""
        match words:
            case [".format", chosen] if chosen in PROMPT_FORMATS:
                self._session.format = Format(chosen)
                said = f"Rows are printed as {chosen}."
            case [".full", "on"]:
                self._session.is_full = True
                said = "All rows and all of long cells are shown."
            case [".full", "off"]:
                self._session.is_full = False
                said = "Many rows and long cells are not all shown."
            case [".timeout", text] if seconds := _seconds(text):
                self._session.timeout_seconds = seconds
                said = f"A query may run for {seconds:g} s."
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
    """Returns what was typed before, in a file that only its owner reads; nothing where it cannot be written."""
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
    """The beginning of a part, on one line."""
    return shorten(" ".join(part.split()), _LONGEST_QUOTE, placeholder="…")


def _show_help() -> None:
    print_entries({usage: [about] for usage, about in USAGES.items()})
    echo("Anything else is SQL, until ';' or until a command on a line of its own, which drops it.")
    echo("Ctrl-C stops a query. Ctrl-R searches what was typed before.")
