"""Highlights code in languages whose lexers take linear time on any text."""

from __future__ import annotations

from functools import cache

from markupsafe import escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES

from nightjar.view.texts.folding import folded, folded_lines

LONGEST = 20_000
"""The longest code in characters that is highlighted."""
_LANGUAGES = {
    "bash": "bash sh shell zsh console shellscript", "c": "c h", "cpp": "cpp c++ cc hpp cxx", "csharp": "csharp cs c#",
    "css": "css", "diff": "diff patch", "docker": "docker dockerfile", "go": "go golang", "html": "html htm",
    "ini": "ini cfg", "java": "java", "javascript": "javascript js jsx mjs node", "json": "json jsonl json5 jsonc",
    "julia": "julia jl", "kotlin": "kotlin kt", "latex": "latex tex", "lean4": "lean lean4", "lua": "lua",
    "make": "make makefile", "php": "php", "python": "python py python3 py3 pycon", "r": "r", "ruby": "ruby rb",
    "rust": "rust rs", "scala": "scala", "sql": "sql sqlite postgresql mysql duckdb", "swift": "swift",
    "toml": "toml", "typescript": "typescript ts tsx", "xml": "xml svg", "yaml": "yaml yml",
}  # fmt: skip
_NAMES = {alias: name for name, aliases in _LANGUAGES.items() for alias in aliases.split()}
CLASSES = frozenset(filter(None, STANDARD_TYPES.values()))
_FORMAT = HtmlFormatter(nowrap=True)
_LONGEST_NAME = 40


def listing(code: str, info: str) -> str:
    """Returns a block of code with its language, the first word of ``info``. Long code is folded."""
    words = info.split(maxsplit=1)
    language = words[0].strip("{}.")[:_LONGEST_NAME] if words else ""
    caption = f"<figcaption>{escape(language)}</figcaption>" if language else ""
    shown, rest = folded_lines(code.removesuffix("\n"))
    lines = highlighted(shown + rest, language).split("\n")
    count = shown.count("\n") if rest else len(lines)
    first, more = "\n".join(lines[:count]), "\n".join(lines[count:])
    html = f"<pre><code>{first}</code></pre>"
    if rest:
        html += folded(f"<pre><code>{more}</code></pre>", len(rest))
    return f'<figure class="listing">{caption}{html}</figure>'


def highlighted(code: str, language: str) -> str:
    """Returns code as HTML with a class for each kind of word. Code in an unknown language is only escaped."""
    name = _NAMES.get(language.lower())
    if name is None or len(code) > LONGEST:
        return str(escape(code))
    return str(highlight(code, _lexer(name), _FORMAT))


@cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)
