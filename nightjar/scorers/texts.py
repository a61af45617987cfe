"""Texts as people write them: equal, containing, and the line that says the answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_INITIALS = re.compile(r"(?<=\b[a-z])\.(?:\s?(?=[a-z]\.)|(?=[a-z]\b))")
_THOUSANDS = re.compile(r"(?<=\d)(?<!\d{4}),(?=\d{3}(?!\d))")
_PUNCTUATION = re.compile(r"((?<!\w)-(?=\.?\d)|(?:(?<=\d)|(?<!\w))\.(?=\d)|(?<=[a-z])(?:\+\+|#)(?!\w))|[!-/:-@\[-`{-~]")
"""Its group is what is none: the sign and the point of a number, and what is behind the letter in C++."""
_MARKUP = re.compile(r"(?<![\w*`])([*_`]{1,3})(?![\s*`])([^\n]{1,500}?)(?<=\S)\1(?![\w*`])")
_BRACED = r"\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
_LATEX = re.compile(r"\\(?:boxed|fbox|text(?:bf|it|rm)?|mathrm|mathbf)" + _BRACED)
_ESCAPED = re.compile(r"\\([$%&#])|\{(,)\}")
_QUOTED = re.compile(
    r"[\"“„«‘']([^\"“”„«»]+)[\"”“»’']\.?|\$((?:\\\$|[^$])+)\$\.?|\\\((.+)\\\)\.?|\*\*([^*]+)|([^*]+)\*\*"
)
_BOX = re.compile(r"\\boxed" + _BRACED)
_LABEL = re.compile(
    r"(?im)^[ \t*_`#>-]*(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|ans)"
    r"[ \t]*[*_`]*[ \t]*[:：=][\s*_`]*(?=[^\s*_`])"
)
_SAID = re.compile(
    r"(?i)(?<!\bif the )(?<!\bwhether the )(?<!\bwhat the )(?<!\bhope the )(?<!\bhope my )(?<!\bhope this )"
    r"\banswer[ \t]*(?:[:：]|\bis\b(?![ \t]+not\b)[ \t]*[:：]?)\s*(?=\S)"
)
_SENTENCE_END = re.compile(
    r"(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Mt|Ft|Lt|Jr|Sr|vs))(?<!\b(?:Mrs|Sgt|Gen|Col|Rev|Gov|Sen))(?<!\b(?:Capt|Prof|Bros))"
    r"(?:\.|(?<=[!?]))(?=\s+[^\W\da-z_]|\s*$)|\n"
)
_BLANK_LINE = re.compile(r"\n\s*\n")


def normalized(text: str) -> str:
    """Returns a text without case, accents, articles and punctuation, but for the sign and the point of a number.

    Where nothing is left then, it keeps its articles; and where it is punctuation alone, that.

    Example:
        >>> normalized("The  Café!"), normalized("!!"), normalized("(A)."), normalized("-12")
        ('cafe', '!!', 'a', '-12')
        >>> normalized("1,200.50"), normalized("U.S.A."), normalized("C++")
        ('1200.50', 'usa', 'c++')
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text).casefold() if not unicodedata.combining(c))
    joined = _THOUSANDS.sub("", _INITIALS.sub("", plain.replace("−", "-")))
    words = _PUNCTUATION.sub(lambda found: found[1] or " ", joined)
    kept = (" ".join(text.split()) for text in (_ARTICLES.sub(" ", words), words, plain))
    return next(filter(None, kept), "")


def same_text(given: str, reference: str) -> bool:
    """Says whether two texts are the same but for case, articles and punctuation; nothing is the same as nothing.

    Example:
        >>> same_text("The Hague.", "hague"), same_text("!!", "??"), same_text("", "")
        (True, False, False)
    """
    return bool(given.strip()) and normalized(given) == normalized(reference)


def contains_text(given: str, reference: str) -> bool:
    """Says whether a text says the reference, as whole words, or is itself part of it; nothing says nothing.

    Example:
        >>> contains_text("It is Paris, of course", "Paris"), contains_text("13 cats", "3"), contains_text("", "Paris")
        (True, False, False)
    """
    said, wanted = (f" {normalized(text)} " for text in (given, reference))
    return bool(said.strip() and wanted.strip()) and (wanted in said or said in wanted)


def stated_answer(text: str) -> str:
    r"""Returns the answer that a text says, without the markup, the quotation marks and the LaTeX around it.

    It is what follows the last ``Answer:`` on its line or on the next one. Or else it is in the last box, or behind the
    last ``the answer is``, up to the end of the sentence, whichever of both is later; or else it is the last line.

    Example:
        >>> stated_answer("Answer: think first.\n**Answer:** 42"), stated_answer("So\nit is 7.\n")
        ('42', 'it is 7.')
        >>> stated_answer("Answer: M*A*S*H"), stated_answer(r"It is \boxed{\text{Paris}}."), stated_answer("Answer = 3")
        ('M*A*S*H', 'Paris', '3')
    """
    return stated_lines(text)[0]


def stated_lines(text: str) -> list[str]:
    r"""Returns the answer that ``stated_answer`` finds, and the lines that follow it without a blank one between.

    Example:
        >>> stated_lines("Answer: Ann\nBob\n\nI am sure.")
        ['Ann', 'Bob']
    """
    plain = _MARKUP.sub(r"\2", _MARKUP.sub(r"\2", text)).strip()
    return [_bare(line) for line in _paragraph(plain).splitlines()] or [""]


def _paragraph(text: str) -> str:
    box, said = _last(_BOX.finditer(text)), _last(_SAID.finditer(text))
    label = _last(_LABEL.finditer(text))
    if label and not (said and said.start() >= label.end() and "\n" not in text[label.end() : said.start()]):
        return _BLANK_LINE.split(text[label.end() :], maxsplit=1)[0]
    if said and not (box and box.start() > said.start()):
        end = _BLANK_LINE if "\n" in said[0] else _SENTENCE_END
        return end.split(text[said.end() :], maxsplit=1)[0]
    return box[1] if box else text.rpartition("\n")[2]


def _last(found: Iterable[re.Match[str]]) -> re.Match[str] | None:
    return next(reversed([*found]), None)


def _bare(line: str) -> str:
    """Returns an answer without what only wraps it: a box, quotation marks, the signs of LaTeX."""
    bare = line.strip()
    while (plain := _unwrapped(bare)) != bare:
        bare = plain
    return _ESCAPED.sub(r"\1\2", bare)


def _unwrapped(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    inner = quoted[quoted.lastindex or 0] if quoted else text
    return _LATEX.sub(r"\1", inner).strip()
