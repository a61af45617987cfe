"""Takes apart what is typed or pasted at the prompt of ``nightjar sql``: commands, named queries, statements.

A command (``.tables``) and a named query (``leaderboard``, ``hardest env=gsm8k``) are a line each; a statement goes on
over lines until its semicolon.
"""

from __future__ import annotations

import shlex

WORDS = {"help": ".help", "?": ".help", "quit": ".quit", "exit": ".quit", ".exit": ".quit", "\\q": ".quit"}
"""What people type who come from another prompt, and the command that it stands for."""


def take_apart(text: str) -> list[str]:
    r"""Returns the commands, named queries and statements of a text, one after the other.

    Example:
        >>> take_apart(".format csv\nSELECT 1,\n2; SELECT 3;\nleaderboard\nSELECT")
        ['.format csv', 'SELECT 1,\n2; SELECT 3;', 'leaderboard', 'SELECT']
    """
    parts: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        lines.append(line)
        part = "\n".join(lines).strip()
        if part and _is_whole(part):
            parts.append(part)
        if not part or _is_whole(part):
            lines = []
    rest = "\n".join(lines).strip()
    return [*parts, rest] if rest else parts


def goes_on(text: str) -> bool:
    """Says whether Enter begins another line: what is typed ends in SQL whose semicolon is missing.

    Example:
        >>> goes_on("SELECT 1"), goes_on("SELECT 1;"), goes_on(".tables"), goes_on("leaderboard")
        (True, False, False, False)
    """
    parts = take_apart(text)
    return bool(parts) and not _is_whole(parts[-1])


def command_of(part: str) -> str | None:
    r"""Returns the command that a line is, or stands for; None for SQL and for the bare name of a query.

    Example:
        >>> command_of("exit;"), command_of("hardest env=gsm8k"), command_of("FROM runs;")
        ('.quit', '.run hardest env=gsm8k', None)
    """
    word = part.removesuffix(";").strip().lower()
    if word in WORDS:
        return WORDS[word]
    if part.startswith((".", "\\")):
        return part
    return f".run {part.removesuffix(';')}" if _is_call(part) else None


def _is_whole(part: str) -> bool:
    from nightjar.warehouse.reading.statements import is_finished

    return command_of(part) is not None or _is_name(part) or is_finished(part)


def _is_name(part: str) -> bool:
    """Says whether a line is one word that begins no statement: the name of a query, or meant as one."""
    from nightjar.warehouse.reading.named_queries import is_name, named_queries
    from nightjar.warehouse.reading.statements import is_keyword

    return is_name(part) and (part in named_queries() or not is_keyword(part))


def _is_call(part: str) -> bool:
    """Says whether a line is the name of a query with values: ``hardest env=gsm8k``."""
    from nightjar.warehouse.reading.named_queries import named_queries

    try:
        name, *values = shlex.split(part.removesuffix(";"))
    except ValueError:
        return False
    return "\n" not in part and name in named_queries() and bool(values) and all("=" in value for value in values)
