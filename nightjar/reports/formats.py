"""Values and texts in JSON and Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from math import floor, isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # SciPy takes 0.8 s
    from nightjar.statistics.intervals import Interval

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
_MINUTE, _HOUR = 60, 3600
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


def duration(seconds: float | None) -> str:
    """Formats a duration in seconds. Returns a dash for None.

    >>> duration(0.0024), duration(2.5), duration(75), duration(7300)
    ('2.4 ms', '2.5 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return "–"
    if seconds < _MINUTE:
        return f"{seconds:.3g} s" if seconds >= 1 or not seconds else f"{1000 * seconds:.3g} ms"
    if seconds < _HOUR:
        return f"{int(seconds) // _MINUTE} min {int(seconds) % _MINUTE} s"
    return f"{int(seconds) // _HOUR:,} h {int(seconds) % _HOUR // _MINUTE} min"


def durations(seconds: Sequence[float]) -> list[str]:
    """Formats durations that are compared with each other, all with the same unit and precision.

    >>> durations([0.0124, 0.9]), durations([0.4, 12]), durations([30, 600])
    (['12.4 ms', '900.0 ms'], ['0.40 s', '12.00 s'], ['0.5 min', '10.0 min'])
    """
    longest = max(seconds, default=0.0)
    if longest < 1:
        return [f"{1000 * one:.1f} ms" for one in seconds]
    return (
        [f"{one:.2f} s" for one in seconds] if longest < _MINUTE else [f"{one / _MINUTE:,.1f} min" for one in seconds]
    )


def interval(found: Interval, form: str = ".4f") -> str:
    """Returns an interval as text. If its ends are not known, the text is empty."""
    return f"[{found.low:{form}}, {found.high:{form}}]" if isfinite(found.low) else ""


def finite(value: Any) -> Any:
    """Returns dicts and lists with None for infinite numbers and NaN, such as an interval without an end."""
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def as_json(value: Any) -> str:
    return json.dumps(finite(value), indent=2) + "\n"
