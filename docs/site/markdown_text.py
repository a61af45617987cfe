"""Writes Markdown from plain texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*_{}\[\]#~^=+])")


def escaped(text: str) -> str:
    """Returns text that Markdown shows as it is, on one line."""
    marked = _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;").replace("$", "&#36;")


def sentence(text: str) -> str:
    """Returns text with a capital letter and a full stop."""
    return escaped(f"{text[:1].upper()}{text[1:].rstrip('.')}.")


def code(text: str, *, is_whole: bool = False) -> str:
    """Returns text as code. With ``is_whole``, no line is broken in it."""
    shown = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;").replace("$", "&#36;")
    return f'<code class="whole">{shown}</code>' if is_whole else f"<code>{shown}</code>"


def docstring(text: str) -> str:
    """Returns a docstring's text, in which code stands between two pairs of backticks."""
    parts = text.split("``")
    return "".join(code(part) if number % 2 else escaped(part) for number, part in enumerate(parts))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
