"""Highlights code. The highlighter works line by line and without Python's lock, so other pages are still answered."""

from __future__ import annotations

import re
from html import unescape

import pyromark
from markupsafe import escape

from nightjar.view.folding import folded, folded_lines

LONGEST, LONGEST_LINE, _MOST_ARROWS = 20_000, 500, 200
"""The limits of code that is highlighted: its characters, those of a line, and its arrows ``=>``, which take long."""
_LONGEST_NAME = 40
_LANGUAGE = re.compile(r"[\w+#.-]+")
_LANGUAGES = {
    "console": "bash", "shell": "bash", "py3": "python", "pycon": "python", "python3": "python", "c#": "cs",
    "jsonc": "json", "jsonl": "json", "node": "js", "postgresql": "sql", "sqlite": "sql", "golang": "go",
    "ini": "", "cfg": "",
}  # fmt: skip
"""Other names of languages, and languages that are not highlighted because spaces take the highlighter long."""
_COLOURS = {
    "a71d5d": "keyword", "183691": "string", "969896": "comment", "0086b3": "constant", "795da3": "name",
    "63a35c": "name", "bd2c00": "gone", "ffecec": "gone", "55a532": "new", "eaffea": "new",
}  # fmt: skip
"""Classes for the colours of the highlighter's theme, because pages have colours of their own for both modes."""
CLASSES = frozenset(_COLOURS.values())
_BOLD = "font-weight:bold"
"""The style of names where they are defined, beside words that have a colour."""
_WORD = re.compile(r'<span style="([^"]*)">([^<]*?)(\n?)</span>')
_COLOUR = re.compile(r"#(\w{6})")
_TAG = re.compile(r"<[^>]*>")
_TILDES = re.compile(r"~+")


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
    name = _LANGUAGES.get(language.lower(), language.lower())
    if not _LANGUAGE.fullmatch(name) or not _is_quick(code):
        return str(escape(code))
    fence = "~" * max(3, 1 + max(map(len, _TILDES.findall(code)), default=0))
    html = pyromark.html(f"{fence}{name}\n{code}\n{fence}", highlight=pyromark.Theme.INSPIRED_GITHUB)
    html = _TAG.sub(_span, _WORD.sub(_word, html)).strip("\n")
    return html if unescape(_TAG.sub("", html)) == code else str(escape(code))


def _is_quick(code: str) -> bool:
    if len(code) > LONGEST or code.count("=>") > _MOST_ARROWS:
        return False
    return max(map(len, code.split("\n"))) <= LONGEST_LINE


def _word(found: re.Match[str]) -> str:
    style, word, end = found.groups()
    kinds = [_COLOURS[colour] for colour in _COLOUR.findall(style) if colour in _COLOURS]
    kind = kinds[-1] if kinds else "name" if _BOLD in style else ""
    return f'<span class="{kind}">{word}</span>{end}' if kind and word else word + end


def _span(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith(('<span class="', "</span")) else ""
