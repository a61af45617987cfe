"""Colours code with Pygments. The classes of its tokens have the prefix ``k-`` and are coloured by the style sheet."""

from __future__ import annotations

from functools import cache, lru_cache

from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from nightjar.reports.formats import visible

LONGEST_CODE = 20_000
"""Longer code has no colours, because some lexers need a time that grows faster than the text."""
_LONGEST_NAME = 40


@lru_cache(maxsize=256)
def highlighted(code: str, language: str) -> Markup | None:
    """Returns code as HTML, escaped. Returns None if the language is unknown or the code is long."""
    lexer = _lexer(language) if language and len(code) <= LONGEST_CODE else None
    if lexer is None:
        return None
    return Markup(highlight(visible(code), lexer, _formatter()).rstrip("\n"))  # noqa: S704 - Pygments escapes texts


@cache
def _formatter() -> HtmlFormatter[str]:
    return HtmlFormatter(nowrap=True, classprefix="k-")


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language[:_LONGEST_NAME], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
