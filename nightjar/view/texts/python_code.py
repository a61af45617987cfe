"""Finds Python code without fences, such as the prompts of HumanEval, in which Markdown would lose the indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_FENCE = re.compile(r"[ >]{0,12}(`{3,}|~{3,})")
_BEGINNING = re.compile(
    r"(?:def \w+\(|class \w+(?:\([\w., ]*\))?:|async def \w+\(|@\w[\w.]*(?:\(.*\))?$|import \w[\w.]*(?: as \w+)?$"
    r"|from [\w.]+ import [\w*][\w*, ()]*$)"
)
_CONTINUATION = re.compile(
    r"$|[ \t]|[)\]}#]|(?:else|try|finally):|(?:if|elif|for|while|with|except) .*:|(?:return|assert) |print\("
    r"|[a-zA-Z_]\w* = "
)
_MARK = "~" * 5


def fenced(text: str) -> str:
    """Returns a text with fences around its Python code."""
    if "def " not in text and "class " not in text:
        return text
    lines = text.split("\n")
    return "\n".join(_lines(lines))


def _lines(lines: Sequence[str]) -> Iterator[str]:
    fence, at = "", 0
    while at < len(lines):
        found = _FENCE.match(lines[at])
        if found and (not fence or found[1].startswith(fence)):
            fence = "" if fence else found[1]
        begins = not fence and _BEGINNING.match(lines[at])
        block = lines[at : _end(lines, at) if begins else at + 1]
        is_code = begins and any(line.startswith((" ", "\t")) for line in block) and _MARK not in "\n".join(block)
        yield from (f"{_MARK}python", *block, _MARK) if is_code else block
        at += len(block)


def _end(lines: Sequence[str], start: int) -> int:
    """Returns the place after the last line of code. A comment that no code follows may be a heading."""
    end = place = start + 1
    while place < len(lines) and (_CONTINUATION.match(lines[place]) or _BEGINNING.match(lines[place])):
        place += 1
        if lines[place - 1].strip() and not lines[place - 1].startswith("#"):
            end = place
    return end
