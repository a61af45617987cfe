"""Takes apart what is typed or pasted at the prompt of ``nightjar sql``: commands, named queries, statements.

A command (``.tables``) and a named query (``leaderboard``, ``hardest env=gsm8k``, ``hardest -P env=gsm8k``) are a line
each, and so is what begins like neither nor like a statement. A statement goes on over lines until its semicolon, or
until a command.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache

import typer

from nightjar.warehouse.reading.named_queries import named_queries
from nightjar.warehouse.reading.statements import is_finished

USAGES = {
    ".tables": "the tables and views",
    ".schema [TABLE]": "their columns and types",
    ".queries [NAME]": "the queries that have a name, or the SQL of one",
    ".run NAME [PARAMETER=VALUE ...]": "run one of them; '.run' may be left out",
    ".format table|csv|json|markdown": "how rows are printed",
    ".full on|off": "whether all rows and all of long cells are shown",
    ".timeout SECONDS": "how long a query may run",
    ".help": "this list",
    ".quit": "leave, as Ctrl-D does",
}
"""What the prompt understands beside SQL."""

COMMANDS = {usage.partition(" ")[0]: about for usage, about in USAGES.items()}

WORDS = {"help": ".help", "?": ".help", "quit": ".quit", "exit": ".quit", ".exit": ".quit", "\\q": ".quit"}
"""What people type who come from another prompt, and the command that it stands for."""

_BEGINNINGS = frozenset(
    re.findall(
        r"\w+",
        "alter analyze attach begin call checkpoint comment commit copy create deallocate delete desc describe detach "
        "drop execute explain export from import insert install load merge pivot pragma prepare reset rollback select "
        "set show start summarize table truncate unpivot update use vacuum values with",
    )
)
"""The words that begin a statement of DuckDB's."""

_FIRST_WORD = re.compile(r"\s*([^\W\d][\w-]*)")
_OPTION = re.compile(r"^(?:-P|--parameter)=?")
_MAY_END = re.compile(r";\s*(?:--|/\*|$)")
"""What a line has in which a statement of several lines ends: a semicolon with nothing but comments behind it."""


def take_apart(text: str) -> list[str]:
    """Returns the commands, named queries and statements of a text, one after the other.

    Only the last part, or one that a command cuts off, may lack its end: ``is_whole`` tells.
    """
    whole, rest = _taken_apart(text)
    return [*whole, rest] if rest else [*whole]


def goes_on(text: str) -> bool:
    """Says whether Enter begins another line: what is typed ends in SQL whose semicolon is missing."""
    return bool(_taken_apart(text)[1])


def command_of(part: str) -> str | None:
    """Returns the command that a line is, or stands for; None for SQL and for the bare name of a query."""
    word = part.removesuffix(";").strip().lower()
    if word in WORDS:
        return WORDS[word]
    if part.startswith((".", "\\")):
        return word if word in COMMANDS else part.removesuffix(";")
    return f".run {part.removesuffix(';')}" if "\n" not in part and _is_call(part) else None


def is_whole(part: str) -> bool:
    """Says whether a part needs no further line: it can be answered, if only by what is wrong with it."""
    if command_of(part) is not None or is_finished(part):
        return True
    return "\n" not in part and _begins_no_statement(part)


def values_of(arguments: Sequence[str]) -> dict[str, str]:
    """Reads values for ``$name``; ``-P`` before each may be left out.

    Raises:
        typer.BadParameter: one has no name, or a name has two.

    Example:
        >>> values_of(["-P", "env=gsm8k", "limit=5"])
        {'env': 'gsm8k', 'limit': '5'}
    """
    values: dict[str, str] = {}
    for pair in filter(None, (_OPTION.sub("", argument) for argument in arguments)):
        name, equals, value = pair.partition("=")
        name = name.strip().removeprefix("$")
        if not equals or not name:
            raise typer.BadParameter(f"Expected PARAMETER=VALUE, found {pair!r}")
        if name in values:
            raise typer.BadParameter(f"Two values for {name!r}: {values[name]!r} and {value!r}")
        values[name] = value
    return values


@lru_cache(maxsize=1)
def _taken_apart(text: str) -> tuple[tuple[str, ...], str]:
    """Returns what is whole, and what goes on; the prompt asks again for every key, also where the text is the same."""
    parts: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        if lines and _is_command(line) and is_finished("\n".join([*lines, ";"])):  # in no open text or comment
            parts += [part for part in ("\n".join(lines).strip(), line.strip()) if part]
            lines = []
            continue
        if lines or line.strip():
            lines.append(line)
        if _may_end_in(lines) and is_whole(part := "\n".join(lines).strip()):
            parts.append(part)
            lines = []
    return tuple(parts), "\n".join(lines).strip()


def _is_command(line: str) -> bool:
    word = line.strip().partition(" ")[0].removesuffix(";").lower()
    return word in COMMANDS or (word.startswith((".", "\\")) and word in WORDS)


def _may_end_in(lines: list[str]) -> bool:
    """Says whether it is worth reading lines as one: only a statement has several."""
    return len(lines) == 1 or (len(lines) > 1 and _MAY_END.search(lines[-1]) is not None)


def _begins_no_statement(line: str) -> bool:
    first = _FIRST_WORD.match(line)
    return first is not None and first[1].lower() not in _BEGINNINGS


def _is_call(line: str) -> bool:
    """Says whether a line is a named query with its values, or meant as one: the name may be wrong, or a value."""
    name, *rest = line.removesuffix(";").split() or [""]
    if not rest or not _begins_no_statement(line):
        return False
    is_near = bool(difflib.get_close_matches(name.lower(), named_queries(), n=1))
    return is_near or rest[0] in {"-P", "--parameter"} or re.match(r"\w+=", rest[0]) is not None
