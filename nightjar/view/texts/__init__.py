"""The texts of conversations as HTML: Markdown, mathematics and highlighted code.

Texts are written by models and may be hostile. Their own HTML is shown as text, the result passes a sanitiser, and
invisible characters are shown as signs. A text that would take long or grow large is not rendered at all.
"""

from __future__ import annotations

from unicodedata import bidirectional

from markupsafe import Markup, escape

from nightjar.reports.formats import visible
from nightjar.view.folding import UNFOLDED, folded
from nightjar.view.texts.answers import Answer
from nightjar.view.texts.markdown import Block, blocks
from nightjar.view.texts.sanitising import sanitised

LONGEST_RENDERED = 100_000
"""The longest text in characters that is rendered."""
_BEGINNING = 1_000
_GROWTH, _ROOM = 10, 20_000
"""The HTML of a text may have 10 characters for each of its characters, and 20,000 more."""
_MOST_TAGS = 60_000
"""More tags, as in a table of 20,000 rows, take browsers over a second."""


def rendered(source: str, answer: str | None = None) -> Markup | None:
    """Returns a text as HTML, with the last occurrence of the answer marked.

    Returns None if the text should be shown as it is.
    """
    if len(source) > LONGEST_RENDERED:
        return None
    found = blocks(source, Answer(answer))
    if found is None:
        return None
    html = _folded(found)
    if len(html) > _GROWTH * len(source) + _ROOM or html.count("<") > _MOST_TAGS:
        return None
    return Markup(sanitised(visible(html)))  # noqa: S704 - sanitised


def marked(source: str, answer: str | None) -> Markup:
    """Returns a text as it is, with the last occurrence of the answer marked."""
    span = Answer(answer).last_in(source)
    if span is None:
        return escape(visible(source))
    parts = (visible(source[: span[0]]), visible(source[slice(*span)]), visible(source[span[1] :]))
    return Markup('{}<mark class="answer">{}</mark>{}').format(*parts)


def direction(text: str) -> str:
    """Returns the direction of a text: that of its first letter. With ``auto``, browsers take quadratic time."""
    kinds = (bidirectional(letter) for letter in text[:_BEGINNING])
    return "rtl" if next((kind for kind in kinds if kind in {"L", "R", "AL"}), "L") != "L" else "ltr"


def _folded(found: list[Block]) -> str:
    size, shown = 0, 0
    for block in found:
        size += block.size
        shown += size <= UNFOLDED or not shown
    rest = found[shown:]
    first, more = ("".join(block.html for block in part) for part in (found[:shown], rest))
    is_long = sum(block.size for block in rest) > UNFOLDED // 2
    return first + folded(more, sum(block.length for block in rest)) if is_long else first + more
