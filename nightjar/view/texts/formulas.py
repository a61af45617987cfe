r"""Finds formulas in Markdown and turns them into MathML, which browsers show without scripts or fonts of a page.

A formula is ``$…$``, ``$$…$$``, ``\(…\)``, ``\[…\]``, ``\boxed{…}`` or an environment such as ``\begin{align}``.
Amounts of money (``$5 and $10``) and shell variables are no formulas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from math_core import LatexError, LatexToMathML

MOST_FORMULAS = 5_000
"""The most formulas in a text. Further formulas are shown as they were written."""
_LONGEST, _DEEPEST = 2_000, 40
"""The longest formula in characters, and the deepest nesting of its elements, that browsers lay out quickly."""

# Each search ends at the next opening or after 2,000 characters, so a text of many openings takes linear time.
_BRACES = r"\{(?>[^{}]+|\{(?>[^{}]+|\{(?>[^{}]+|\{[^{}]*\})*\})*\})*\}"
_FORMULA = re.compile(
    r"\$\$(?P<dollars>(?:(?!\$\$|```).){1,2000})\$\$"
    r"|\\\[(?P<brackets>(?:(?!\\[\[\]]|```).){1,2000})\\\]"
    r"|\\\((?P<parentheses>(?:(?!\\[()]|```).){1,2000})\\\)"
    r"|(?P<environment>\\begin\{(?P<name>align|aligned|array|cases|eqnarray|equation|gather|multline|split|[bBpvV]?matrix)"
    r"(?P<star>\*?)\}(?:(?!\\begin\{(?P=name)|```).){1,2000}?\\end\{(?P=name)(?P=star)\})"
    rf"|(?P<boxed>\\f?boxed\s?{_BRACES})"
    r"|(?<![\\$\w])\$(?=[^\s$])(?P<dollar>(?:[^$`\\\n]|\\.|\n(?!\s*\n)){1,500})(?<!\s)\$(?![\d$])",
    re.DOTALL,
)
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
"""Enclose the number of a formula. Unicode reserves both for the internal use of programs."""
_PLACE = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_STRANGE = str.maketrans({_OPEN: "\ufffd", _CLOSE: "\ufffd"})

_DANGLING = re.compile(r"[-+*/=<>,;:(–—]\Z")
_AMOUNT = re.compile(r"\d[\d.,]*(?=\s|/|[a-zA-Z]{2}).*[a-zA-Z]{2}", re.DOTALL)
_SIGNS = re.compile(r"[\\^_{}=]")
_WORDS = re.compile(r"[^\\^_{}$]*")
_OWN_COMMANDS = re.compile(
    r"\\(?:[xge]?def|let|newcommand|renewcommand|providecommand|newenvironment|DeclareMath\w*)\b"
)
_MACROS = {
    "mbox": r"\text{#1}",
    "textnormal": r"\text{#1}",
    **dict.fromkeys(("tiny", "small", "normalsize", "large", "Large", "LARGE", "huge", "Huge"), ""),
}
_REPLACED = {
    r"\begin{split}": r"\begin{aligned}", r"\end{split}": r"\end{aligned}",
    r"\begin{eqnarray": r"\begin{align", r"\end{eqnarray": r"\end{align",
}  # fmt: skip
_TAG = re.compile(r"\\tag\*?\{([^{}]*)\}")
_ELEMENT = re.compile(r"<(/?)[a-z][^>]*?(/?)>")
_STYLE = re.compile(r' style="([^"]*)"')
_CLASSES = {
    "text-align: left": "left", "text-align: right": "right",
    "padding-left: 0": "joined-left", "padding-right: 0": "joined-right", "padding-left:1em": "apart",
    "border-left: 0.05em solid currentcolor": "line-left", "border-right: 0.05em solid currentcolor": "line-right",
    "border-top: 0.05em solid currentcolor": "line-top", "border-bottom: 0.05em solid currentcolor": "line-bottom",
}  # fmt: skip
"""Classes for the styles of tables, because pages allow no styles of elements."""
CLASSES = frozenset(_CLASSES.values())


@dataclass(frozen=True)
class Formula:
    source: str
    """The formula as it was written, with its delimiters."""
    latex: str
    is_display: bool


def take_out(text: str) -> tuple[str, list[Formula]]:
    """Returns a text in which numbered places stand for formulas, which no rule of Markdown changes."""
    formulas: list[Formula] = []

    def place(found: re.Match[str]) -> str:
        formula = _formula(found) if len(formulas) < MOST_FORMULAS else None
        if formula is None:
            return found[0]
        formulas.append(formula)
        return f"{_OPEN}{len(formulas) - 1}{_CLOSE}"

    text = text.translate(_STRANGE)
    return (_FORMULA.sub(place, text) if "$" in text or "\\" in text else text), formulas


def put_back(text: str, formulas: Sequence[Formula]) -> str:
    return _PLACE.sub(lambda found: formulas[int(found[1])].source, text) if _OPEN in text else text


def split(text: str, formulas: Sequence[Formula]) -> list[str | Formula]:
    """Returns the texts and formulas of a text with places."""
    if _OPEN not in text:
        return [text]
    parts = _PLACE.split(text)
    return [formulas[int(part)] if number % 2 else part for number, part in enumerate(parts) if part]


def mathml(formula: Formula) -> str | None:
    """Returns a formula as MathML. Returns None for LaTeX that is broken, too long or too deep."""
    latex = _TAG.sub(r"\\qquad\\text{(\1)}", formula.latex)
    for old, new in _REPLACED.items():
        latex = latex.replace(old, new)
    if len(latex) > _LONGEST or _OWN_COMMANDS.search(latex):
        return None
    try:
        found = _converter().convert_with_local_state(latex, displaystyle=formula.is_display)
    except LatexError:
        return None
    return _STYLE.sub(_class, found) if _depth(found) <= _DEEPEST else None


def boxed_words(formula: Formula) -> str | None:
    r"""Returns the words of ``\boxed{some words}``, which mathematics would print without spaces."""
    if not formula.latex.startswith((r"\boxed", r"\fboxed")):
        return None
    words = formula.latex.partition("{")[2][:-1]
    return words if re.search(r"[^\W\d_]{2}", words) and _WORDS.fullmatch(words) else None


def _formula(found: re.Match[str]) -> Formula | None:
    kind = found.lastgroup if found.lastgroup not in {"name", "star"} else "environment"
    latex = found[kind or 0]
    if kind == "dollar" and not _is_mathematics(latex):
        return None
    is_display = kind in {"dollars", "brackets", "environment"}
    if kind == "boxed":
        latex = latex.replace(r"\fboxed", r"\boxed")
    return Formula(found[0], latex.strip(), is_display) if latex.strip() else None


def _is_mathematics(text: str) -> bool:
    """Tells formulas between single dollars from amounts, such as ``$5 a piece, or 3$``, and from paths."""
    if _DANGLING.search(text):
        return False
    return bool(_SIGNS.search(text)) or not _AMOUNT.match(text)


def _depth(elements: str) -> int:
    depth = deepest = 0
    for is_end, is_empty in _ELEMENT.findall(elements):
        depth += -1 if is_end else 0 if is_empty else 1
        deepest = max(deepest, depth)
    return deepest


def _class(found: re.Match[str]) -> str:
    styles = (style.strip() for style in found[1].split(";"))
    names = [_CLASSES[style] for style in styles if style in _CLASSES]
    return f' class="{" ".join(names)}"' if names else ""


@cache
def _converter() -> LatexToMathML:
    return LatexToMathML(macros=_MACROS, fancy_error=False, max_expansions=1_000)
