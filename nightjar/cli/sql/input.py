"""Parses the input at the prompt of ``nightjar sql`` into commands, named queries and statements.

A command (``.tables``) or a named query (``hardest env=gsm8k``, ``hardest -P env=gsm8k``) is one line. A statement
extends over lines until its semicolon or a command. A line that begins like none of these is a part by itself.
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
    ".queries [NAME]": "the named queries, or the SQL of one",
    ".run NAME [PARAMETER=VALUE ...]": "run a named query; '.run' may be left out",
    ".format table|csv|json|markdown": "format of the rows",
    ".full on|off": "show all rows and whole cells, or not",
    ".timeout SECONDS": "time limit of a query",
    ".help": "this list",
    ".quit": "quit, like Ctrl-D",
}

COMMANDS = {usage.partition(" ")[0]: about for usage, about in USAGES.items()}

WORDS = {"help": ".help", "?": ".help", "quit": ".quit", "exit": ".quit", ".exit": ".quit", "\\q": ".quit"}

_BEGINNINGS = frozenset(
    re.findall(
        r"\w+",
        "alter analyze attach begin call checkpoint comment commit copy create deallocate delete desc describe detach "
        "drop execute explain export from import insert install load merge pivot pragma prepare reset rollback select "
        "set show start summarize table truncate unpivot update use vacuum values with",
    )
)

_FIRST_WORD = re.compile(r"\s*([^\W\d][\w-]*)")
_OPTION = re.compile(r"^(?:-P|--parameter)=?")
_MAY_END = re.compile(r";\s*(?:--|/\*|$)")
"""The end of a statement of several lines: a semicolon with only comments behind it."""


def take_apart(text: str) -> list[str]:
    """Returns the parts in order. Only the last part, or a part before a command, may be incomplete."""
    whole, rest = _taken_apart(text)
    return [*whole, rest] if rest else [*whole]


def goes_on(text: str) -> bool:
    """Returns whether Enter begins another line, because the text ends in SQL without its semicolon."""
    return bool(_taken_apart(text)[1])


def command_of(part: str) -> str | None:
    """Returns None for SQL and for the bare name of a query."""
    word = part.removesuffix(";").strip().lower()
    if word in WORDS:
        return WORDS[word]
    if part.startswith((".", "\\")):
        return word if word in COMMANDS else part.removesuffix(";")
    return f".run {part.removesuffix(';')}" if "\n" not in part and _is_call(part) else None


def is_whole(part: str) -> bool:
    """Returns whether a part is complete and can be answered, if only with an error."""
    if command_of(part) is not None or is_finished(part):
        return True
    return "\n" not in part and _begins_no_statement(part)


def values_of(arguments: Sequence[str]) -> dict[str, str]:
    """Parses values for ``$name``, with or without ``-P``; ``BadParameter`` if a name is missing or given twice.

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
    """Returns the complete parts and the incomplete rest. Cached, because the prompt calls this at every key."""
    parts: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        if lines and _is_command(line) and is_finished("\n".join([*lines, ";"])):  # in no open text or comment
            parts += [part for part in ("\n".join(lines).strip(), line.strip()) if part]
            lines = []
            continue
        if lines or line.strip():
            lines.append(line)
        may_end = len(lines) == 1 or (len(lines) > 1 and _MAY_END.search(lines[-1]))  # only SQL has several lines
        if may_end and is_whole(part := "\n".join(lines).strip()):
            parts.append(part)
            lines = []
    return tuple(parts), "\n".join(lines).strip()


def _is_command(line: str) -> bool:
    word = line.strip().partition(" ")[0].removesuffix(";").lower()
    return word in COMMANDS or (word.startswith((".", "\\")) and word in WORDS)


def _begins_no_statement(line: str) -> bool:
    first = _FIRST_WORD.match(line)
    return first is not None and first[1].lower() not in _BEGINNINGS


def _is_call(line: str) -> bool:
    name, *rest = line.removesuffix(";").split() or [""]
    if not rest or not _begins_no_statement(line):
        return False
    is_near = bool(difflib.get_close_matches(name.lower(), named_queries(), n=1))
    return is_near or rest[0] in {"-P", "--parameter"} or re.match(r"\w+=", rest[0]) is not None
