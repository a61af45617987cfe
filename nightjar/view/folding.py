"""Folds the rest of long texts. A browser's search finds it all the same."""

from __future__ import annotations

UNFOLDED, UNFOLDED_LINES = 4_000, 20
"""The characters and lines that are shown of a text. Listings in Markdown have no limit of lines."""


def folded(html: str, characters: int) -> str:
    return f'<details class="rest"><summary>{characters:,} more characters</summary>{html}</details>'


def folded_lines(text: str) -> tuple[str, str]:
    """Returns whole lines of a text to show, and the rest, which is empty unless it is long."""
    if len(text) <= UNFOLDED * 3 // 2:
        return text, ""
    cut = text.rfind("\n", 0, UNFOLDED) + 1 or text.find("\n", UNFOLDED) + 1 or len(text)
    return text[:cut], text[cut:]


def fold_position(text: str, *, shows_end: bool = False) -> int | None:
    """Returns where the shown part of a text ends, or begins with ``shows_end``, if possible at a newline.

    Returns None for a text that is not folded because it is short.
    """
    if len(text) <= UNFOLDED * 3 // 2 and text.count("\n") < UNFOLDED_LINES * 3 // 2:
        return None
    if shows_end:
        low = max(0, len(text) - UNFOLDED)
        lines = text[low:].split("\n")[-UNFOLDED_LINES:]
        cut = len(text) - sum(len(line) + 1 for line in lines) + 1
        return cut if cut > low else text.find("\n", low, low + UNFOLDED // 2) + 1 or low
    lines = text[:UNFOLDED].split("\n")[: UNFOLDED_LINES + 1]
    cut = sum(len(line) + 1 for line in lines[:-1])
    return cut if cut > UNFOLDED // 2 or len(lines) > UNFOLDED_LINES else UNFOLDED
