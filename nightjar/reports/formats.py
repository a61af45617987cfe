"""Values and texts in JSON and Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from math import floor, isfinite
from typing import Any

_VISIBLE = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"}
    | {0x7F: "␡"}
    | {code: f"[U+{code:04X}]" for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)
"""Signs that replace control characters, and characters that change the direction of writing."""
_PLAIN = re.compile(r"(?:[\w ,.:;%/()'+=^-]|[^\x00-\x7f]|\[[\d., -]*\]|\bpass@\d+)*")
_MEANT = re.compile(r"[!-/:-@\[-`{-~]")
_LINK = re.compile(r"://|www\.|\b_|_\b|^\s*([-+=>]\s|\d+[.)]\s)")
_TICKS = re.compile(r"`+")
_NUMBER = re.compile(r"[\d.,% –\[\]-]+( m?s)?")


def visible(text: str) -> str:
    r"""Returns a text with signs for invisible and direction-changing characters. Line feeds and tabs stay.

    >>> visible("a\x1b[31m\u202eb")
    'a␛[31m[U+202E]b'
    """
    return text.translate(_VISIBLE)


def table(heading: str, rows: Sequence[str]) -> str:
    """Returns a Markdown table, or "" without rows. Cells of heading and rows are joined by `` | ``, see ``cell``."""
    rule = " | ".join("---" for _ in heading.split("|"))
    return "\n".join(f"| {row} |" for row in (heading, rule, *rows)) if rows else ""


def cell(text: object) -> str:
    return str(text).partition("\n")[0].replace("|", "¦")


def text_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table as text, with numeric columns aligned to the right. Without rows, the text is empty."""
    body = [list(map(str, row)) for row in rows]
    rules = ["---:" if all(_NUMBER.fullmatch(row[place]) for row in body) else "---" for place in range(len(names))]
    lines = [list(map(safe, names)), rules, *([safe(text) for text in row] for row in body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if body else ""


def safe(text: object) -> str:
    """Returns a text that Markdown shows literally in a line or cell. Special characters become entities in code.

    >>> safe("gpt-4.1_mini"), safe("a|b")
    ('gpt-4.1_mini', '<code>a&#124;b</code>')
    """
    line = " ".join(visible(str(text)).split())
    if _PLAIN.fullmatch(line) and not _LINK.search(line):
        return line
    return f"<code>{_MEANT.sub(lambda found: f'&#{ord(found[0])};', line)}</code>"


def fenced(text: str) -> str:
    """Returns a text as a code block that the text itself cannot close."""
    longest = max(map(len, _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}"


def percent(share: float | None) -> str:
    """Formats a share in percent, rounded down, so that 100 % means all. Returns a dash for None.

    >>> percent(1.0), percent(0.9991), percent(31 / 96), percent(None)
    ('100 %', '99.9 %', '32.2 %', '–')
    """
    return "–" if share is None else f"{floor(share * 1000 + 1e-9) / 10:g} %"


def finite(value: Any) -> Any:
    """Returns dicts and lists with None for infinite numbers and NaN, such as an interval without an end."""
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def as_json(value: Any) -> str:
    return json.dumps(finite(value), indent=2) + "\n"
