"""Compares texts as people and models write them, and finds the line, letter or JSON that states an answer."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_INITIALS = re.compile(r"(?<=\b[a-z])\.(?:\s?(?=[a-z]\.)|(?=[a-z]\b))")
_THOUSANDS = re.compile(r"(?<=\d)(?<!\d{4}),(?=\d{3}(?!\d))")
_PUNCTUATION = re.compile(r"((?<!\w)-(?=\.?\d)|(?:(?<=\d)|(?<!\w))\.(?=\d)|(?<=[a-z])(?:\+\+|#)(?!\w))|[!-/:-@\[-`{-~]")
"""Characters in the group are kept: the sign and the point of a number, and those after the letter in C++ and C#."""
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
    """Returns a text without case, accents, articles and punctuation; signs and points of numbers stay.

    Articles stay in a text that has no other words. Punctuation stays in a text that has no words.

    Example:
        >>> normalized("The  Café!"), normalized("(A)."), normalized("1,200.50"), normalized("C++")
        ('cafe', 'a', '1200.50', 'c++')
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text).casefold() if not unicodedata.combining(c))
    joined = _THOUSANDS.sub("", _INITIALS.sub("", plain.replace("−", "-")))
    words = _PUNCTUATION.sub(lambda found: found[1] or " ", joined)
    kept = (" ".join(text.split()) for text in (_ARTICLES.sub(" ", words), words, plain))
    return next(filter(None, kept), "")


def same_text(given: str, reference: str) -> bool:
    """Returns whether two texts are equal except for case, articles and punctuation; False for an empty text."""
    return bool(given.strip()) and normalized(given) == normalized(reference)


def contains_text(given: str, reference: str) -> bool:
    """Returns whether one text contains the other as whole words; False for an empty text."""
    said, wanted = (f" {normalized(text)} " for text in (given, reference))
    return bool(said.strip() and wanted.strip()) and (wanted in said or said in wanted)


def stated_answer(text: str) -> str:
    r"""Returns the stated answer of a text, without the markup, quotation marks and LaTeX around it.

    The answer follows the last ``Answer:``, on the same line or the next. Otherwise it is the content of the last box
    or the rest of the sentence after the last ``the answer is``, whichever is later. Otherwise it is the last line.
    """
    return stated_lines(text)[0]


def stated_lines(text: str) -> list[str]:
    r"""Returns the answer that ``stated_answer`` finds, and the lines after it up to a blank line."""
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
    bare = line.strip()
    while (plain := _unwrapped(bare)) != bare:
        bare = plain
    return _ESCAPED.sub(r"\1\2", bare)


def _unwrapped(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    inner = quoted[quoted.lastindex or 0] if quoted else text
    return _LATEX.sub(r"\1", inner).strip()


_BLANKS = re.compile(r"[^\S\n]+")
_CHOICE_MARKUP = re.compile(r"[*_`$\"“”„«»「」\u200b-\u200f\u2060\ufeff]+|\\[()\[\]]|\\(?:text|math)\w*")
_OTHER_SCRIPTS = dict(zip("أبجدঅবডঢАБВСЕ", "ABCDABCDABBCE", strict=True))
"""A to D in Arabic and Bengali, as in simple-evals; Cyrillic letters that look or sound like Latin ones."""

_AFTER_A = r"(?:is|because|since|as|due|for|ist|weil|est|car|es|porque)\b"
_LETTER = (
    rf"(?:(?:[B-HJ]|[AIK-Za-z](?! (?!{_AFTER_A})[a-zß-ÿ]))(?!['’-]?[A-Za-z0-9À-ɏ]| ?[=+#])"
    rf"|[{''.join(_OTHER_SCRIPTS)}](?![\w\u0900-\u09ff]))"
)
"""A letter that does not begin a word. "A", "I" and K to Z only count if the next word cannot continue a sentence,
because "A" and "I" are words and "T" may be a cell.
"""

_AND = r"(?:(?:[,/&、和或与]|\b(?:and|or|und|oder|et|ou|y|o|и|или|maybe|perhaps|possibly)\b) ?){1,4}"
_CLOSED = r"[)\]}'’]*"
_LETTERS = rf"[ (\[{{'‘]{{0,5}}({_LETTER}(?:(?: |{_CLOSED} ?{_AND}[(\[{{]*){_LETTER})*)"
"""One letter or several at once. In "D) B and C", the text after the bracket is the option's text."""
_ANSWER = (
    r"(?:\b(?:answers?|ans|antwort|réponse|respuesta|risposta|resposta|jawaban|jibu|[iì]d[aá]h[uù]n|ответ)\b"
    r"|答案|答え|答复|答曰|回答|解答|答|정답|답변|답|উত্তর|उत्तर|الإجابة|إجابة|الجواب"
    r"|\b(?:correct|right|best) (?:option|choice|letter)\b)"
)
_IS = (
    r"(?:(?:\b(?:is|are|be|was|ist|lautet|est|es|è|é|adalah|ni)\b"
    r"(?: (?:most )?(?:\w+ly|therefore|thus|hence|indeed)\b)?|是|为|為|は|은|는|হল|है|هي|هو) ?[:=>→–—-]*|[:=>→–—ঃ-]+)"
)
_WORDS = r"(?: (?!(?:not|cannot|never|wrong|incorrect)\b)[^\W\d_]+){0,3}?"
_OPTION = r"(?:\b(?:option|choice|letter)\b|选项|選項)"
_LEAD = rf" ?(?:(?:\b(?:the|both|either)\b|{_OPTION}) ?){{0,3}}"

_DENIED = r" ?(?:is|was|can be) (?:\w+ ){0,2}?(?:not|wrong|incorrect|false|unlikely|eliminated|ruled out)\b"
_AFFIRMED = r" (?:is|must be|has to be) (?:(?!not\b|never\b|less\b)\w+ ){0,2}?(?:correct|right|best|true|answer|one)\b"

_STATED = re.compile(
    rf"\\f?boxed ?{_LETTERS}(?= ?[)\]}}.:,])|(?i:{_ANSWER}{_WORDS} ?{_IS}{_LEAD}){_LETTERS}(?!{_DENIED})"
)
_CHOSEN = re.compile(
    rf"(?i:\b(?:choose|chose|pick|select|go with|so|hence|thus|therefore),? (?:the )?{_OPTION} ?){_LETTERS}"
    rf"(?!{_CLOSED}{_DENIED})"
    rf"|(?i:{_OPTION} ?){_LETTERS}(?={_CLOSED}{_AFFIRMED})"
    rf"|(?i:{_ANSWER} ?){_LETTERS}(?!{_CLOSED}{_DENIED})"
)
_OPTIONS = re.compile(rf"(?i:{_OPTION} ?{_IS}?{_LEAD}){_LETTERS}(?!{_CLOSED}{_DENIED})")
_ALONE = re.compile(rf"(?m)^ ?[(\[]?({_LETTER})[)\].:]* ?$")
_PICKED = re.compile(
    r"(?m)(?i:\bi (?:choose|pick|select)|\bit (?:must|has to) be) ([A-HJ-Z])(?=[.!)]* ?$)"
    r"|^ ?([A-HJ-Z]) is the (?:correct|right|best) (?:answer|option|choice)\b"
    r"|^ ?([B-HJ-Z]): \S[^\n]*\s*\Z"  # not "A: …", which may be an answer
)
_BEGINNING = re.compile(r"(?m)^ ?([A-Z])[).]+ \S")
_IN_BRACKETS = re.compile(r"(?<!\w)[(\[]([A-Za-z])[)\]]")


def stated_letter(text: str, letters: str = "ABCDEFGHIJ") -> str | None:
    r"""Returns the final letter of a text in upper case; None if it names no letter of ``letters``, or several at once.

    It is the last letter in a box, or after a colon or "is" that follows "answer" (also in the languages of
    simple-evals) or "correct option". Otherwise, in this order: the chosen option; the only option mentioned; the last
    letter alone on a line, or after "I choose"; the letter of the only line that begins with a letter; the last letter
    in brackets. A letter that continues a sentence ("answer: I think") does not count.
    """
    plain = _BLANKS.sub(" ", _CHOICE_MARKUP.sub("", unicodedata.normalize("NFKC", text)))
    for pattern in (_STATED, _CHOSEN, _OPTIONS, _ALONE, _PICKED, _BEGINNING, _IN_BRACKETS):
        named = _named_by(pattern, plain, letters)
        if pattern in (_OPTIONS, _BEGINNING) and len(set().union(*named)) != 1:
            continue  # it lists them
        if named:
            return named[-1].pop() if len(named[-1]) == 1 else None
    return None


def _named_by(pattern: re.Pattern[str], text: str, letters: str) -> list[set[str]]:
    all_of_them = (re.findall(_LETTER, found[found.lastindex or 0]) for found in pattern.finditer(text))
    named = [{_OTHER_SCRIPTS.get(letter, letter.upper()) for letter in found} for found in all_of_them]
    return [found for each in named if (found := each & set(letters.upper()))]


_BLOCK = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL)
_DECODER = json.JSONDecoder()
_UNREADABLE = (ValueError, RecursionError)
"""RecursionError: a degenerate reply may nest more brackets than Python can parse."""


def extract_json(text: str) -> Any | None:
    """Returns the JSON value of a text (all of it, a fenced block, or the first object or array); None without JSON."""
    for candidate in (text, *_BLOCK.findall(text)):
        try:
            return json.loads(candidate)
        except _UNREADABLE:
            continue
    for start in re.finditer(r"[{\[]", text):
        try:
            return _DECODER.raw_decode(text, start.start())[0]
        except ValueError:
            continue
        except RecursionError:
            return None
    return None
