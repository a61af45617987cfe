"""Answers to multiple choice: the letter of an option."""

from __future__ import annotations

import re
import unicodedata

_BLANKS = re.compile(r"[^\S\n]+")
_MARKUP = re.compile(r"[*_`$\"“”„«»「」\u200b-\u200f\u2060\ufeff]+|\\[()\[\]]|\\(?:text|math)\w*")
_OTHER_SCRIPTS = dict(zip("أبجدঅবডঢАБВСЕ", "ABCDABCDABBCE", strict=True))
"""A to D in Arabic and Bengali, as simple-evals has them; and Cyrillic letters that look or sound like Latin ones."""

_AFTER_A = r"(?:is|because|since|as|due|for|ist|weil|est|car|es|porque)\b"
_LETTER = (
    rf"(?:(?:[B-HJ]|[AIK-Za-z](?! (?!{_AFTER_A})[a-zß-ÿ]))(?!['’-]?[A-Za-z0-9À-ɏ]| ?[=+#])"
    rf"|[{''.join(_OTHER_SCRIPTS)}](?![\w\u0900-\u09ff]))"
)
"""One that begins no word; "A" and "I" are words themselves before another, but for those that cannot follow them, and
"T" is more of a cell than an option: K to Z are read like them."""

_AND = r"(?:(?:[,/&、和或与]|\b(?:and|or|und|oder|et|ou|y|o|и|или|maybe|perhaps|possibly)\b) ?){1,4}"
_CLOSED = r"[)\]}'’]*"
_LETTERS = rf"[ (\[{{'‘]{{0,5}}({_LETTER}(?:(?: |{_CLOSED} ?{_AND}[(\[{{]*){_LETTER})*)"
"""One, or several at once; what stands behind a bracket and a blank, as in "D) B and C", is the option's own text."""
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
    r"""Returns the letter that a text ends up with, in upper case; None where it names none of ``letters``, or several.

    It is the last one that stands in a box, or after "answer" (in the languages of simple-evals, too) or "correct
    option" and a colon or "is"; else the option that is chosen or said to be right, else the only one that is spoken
    of; else the last that stands alone in a line, or after "I choose" or "it must be"; else that of the only line that
    begins with one ("B. Madrid"); else the last one in brackets. A letter that begins a word, or goes on as a sentence
    does ("answer: I think"), is none; nor are several at once ("Answer: A or B").

    Example:
        >>> stated_letter("**Answer:** B (not option C)"), stated_letter("Answer: because of that\nAnswer: (c)")
        ('B', 'C')
        >>> stated_letter("Answer: I think C"), stated_letter("Answer: A, B"), stated_letter("no idea")
        (None, None, None)
    """
    plain = _BLANKS.sub(" ", _MARKUP.sub("", unicodedata.normalize("NFKC", text)))
    for pattern in (_STATED, _CHOSEN, _OPTIONS, _ALONE, _PICKED, _BEGINNING, _IN_BRACKETS):
        named = _named_by(pattern, plain, letters)
        if pattern in (_OPTIONS, _BEGINNING) and len(set().union(*named)) != 1:
            continue  # it lists them
        if named:
            return named[-1].pop() if len(named[-1]) == 1 else None
    return None


def _named_by(pattern: re.Pattern[str], text: str, letters: str) -> list[set[str]]:
    """Returns the letters that each match names, where it names some."""
    all_of_them = (re.findall(_LETTER, found[found.lastindex or 0]) for found in pattern.finditer(text))
    named = [{_OTHER_SCRIPTS.get(letter, letter.upper()) for letter in found} for found in all_of_them]
    return [found for each in named if (found := each & set(letters.upper()))]
