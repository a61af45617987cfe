"""Folds the rest of long texts. A browser's search finds it all the same."""

from __future__ import annotations

UNFOLDED = 4_000
"""The characters shown of a text."""


def folded(html: str, characters: int) -> str:
    return f'<details class="rest"><summary>{characters:,} more characters</summary>{html}</details>'


def folded_lines(text: str) -> tuple[str, str]:
    """Returns whole lines of a text to show, and the rest, which is empty unless it is long."""
    if len(text) <= UNFOLDED * 3 // 2:
        return text, ""
    cut = text.rfind("\n", 0, UNFOLDED) + 1 or text.find("\n", UNFOLDED) + 1 or len(text)
    return text[:cut], text[cut:]
