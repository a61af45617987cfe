"""Reads numbers as people and models write them: separators of any language, LaTeX, digits of any script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache

_NOT_PLAIN = re.compile(r"[^\x00-\x7f]|[\\{^~]")
"""A character that ``plain_text`` may change."""
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_MARKS = str.maketrans({"−": "-", "‐": "-", "’": "'", "٬": ",", "٫": "."})
_LATEX = (
    (re.compile(r"(?<=\d)(?=\\[dt]?frac)"), " "),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"\1/\2"),
    (re.compile(r"\{([,.])\}|\\([$%])|\\!"), r"\1\2"),
    (re.compile(r"\\[,;: ]|~"), " "),
    (re.compile(r"(?<=[A-Za-z}])\^(?:\d|\{\d+\})"), ""),  # square metres are no number
    (re.compile(r"(?<![^\s*_:=$(])(?<!\d\s)–(?=\$?\d)"), "-"),
)
_POWER = re.compile(
    r"(?<![\w.,/^])(?:(?P<times>\d{1,9}(?:\.\d{1,9})?)\s?(?:\\times|\\cdot|[x×*])\s?)?"
    r"(?P<base>\d{1,9})\^(?:\{(?P<braced>\d{1,2})\}|(?P<power>\d{1,2}))(?![\d^])"
)
_GROUP = 3
"""Digits between two thousands separators."""
_DIGITS = r"(?:(?:(?<![\d.,])\d{1,3}(?:[ ']\d{3})+(?!\d)|\d+)(?:[.,]\d+)*|\.\d+)"
_NUMBER = re.compile(
    r"(?P<before>(?<![0-9A-Za-z)\]}%])-?(?:[$€£¥₹₽฿]\s?-?){0,3})?"
    rf"(?:(?P<whole>\d+) {{1,2}}(?=\d+/\d))?(?P<number>{_DIGITS})(?: ?/ ?(?P<under>{_DIGITS}))?"
)
_EQUALS = re.compile(r"=|≈|\\approx")
_IS = re.compile(r"(?i)\b(?:is|are|was|were|equals)\b")
_OPENING = re.compile(
    r"(?i)(?:\\[a-z]+|\W|_|\b(?:about|around|approximately|roughly|nearly|almost|exactly|only|just)\b)*+"
)
_CALCULATED_WITH = re.compile(
    r"[^\d,;:().]{0,30}?(?:(?<=\d)[-+*/×÷^x]|\s(?:[-+*/×÷x]|plus|minus|times)\s+|\s?\\(?:times|cdot|div)\s*|%\s+of\s)"
    r"[-$({\\]{0,3}\d"
)
_ASIDE = re.compile(
    r"(?i)\b(?:the|in|after|since|for|over|per|every|of|with|at|by|from|than|within|during|on)\s+[^\w\s]{0,3}\d[\d.,]*"
)
_SO = re.compile(r"(?i),\s*so\b|\b(?:thus|therefore|hence)\b")
_SENTENCE_END = re.compile(r"[.!?][*_\"']*(?=\s|$)")
_STATED = re.compile(
    r"(?m)(?:(?i:\bans(?:wer)?[*_}\" ]*(?:\bis\b(?!\s+not\b)|[:=])|^[#*_ ]*(?:final )?answer[*_ ]*$)"
    r"|^[*_ ]*A[*_ ]*:(?=[^\n]*\s*\Z))(?=[*_\s]*([^\n]{0,300}))"
)


def plain_text(text: str) -> str:
    r"""Returns a text (NFC) with ASCII digits, separators and signs, and without LaTeX and powers in its numbers.

    Example:
        >>> plain_text(r"−１,২०० m²"), plain_text(r"\$1{,}200 = 1\,200"), plain_text(r"2\frac{1}{2}")
        ('-1,200 m²', '$1,200 = 1 200', '2 1/2')
    """
    if not _NOT_PLAIN.search(text):
        return text
    plain = unicodedata.normalize("NFC", _NOT_ASCII.sub(lambda found: _plain_character(found.group()), text))
    for markup, written in _LATEX:
        plain = markup.sub(written, plain)
    return _POWER.sub(_power, plain)


def _power(found: re.Match[str]) -> str:
    power = int(found["base"]) ** int(found["braced"] or found["power"])
    return f"{Decimal(found['times']) * power:f}" if found["times"] else str(power)


@lru_cache(maxsize=4096)
def _plain_character(character: str) -> str:
    if unicodedata.category(character) in ("No", "So"):  # ² and ㎡ would become digits
        return character
    digit = unicodedata.decimal(character, None)
    return unicodedata.normalize("NFKC", character).translate(_MARKS) if digit is None else str(digit)


def read_numbers(text: str, has_decimal_comma: bool = False) -> Iterator[Decimal]:
    """Yields the numbers in a text; a fraction is yielded as its value.

    The digits around a comma or point decide whether it is the decimal mark: `1,234` is 1234, `1,50` is 1.5, `1.234,5`
    is 1234.5. With ``has_decimal_comma``, as in German, `1.234` is 1234.
    """
    for found in _NUMBER.finditer(plain_text(text)):
        number = _value(found["number"], has_decimal_comma)
        if found["under"]:
            number /= _value(found["under"], has_decimal_comma) or 1
        if found["whole"]:
            number += Decimal(found["whole"])
        yield number.copy_negate() if "-" in (found["before"] or "") else number


def _value(digits: str, has_decimal_comma: bool) -> Decimal:
    joined = re.sub("[ ']", "", digits)
    whole, mark, decimals = re.match(r"(.*?)(?:([.,])(\d+))?$", joined).groups("")  # type: ignore[union-attr]
    if _is_decimal(whole, mark, decimals, has_decimal_comma):
        return Decimal(f"{re.sub('[.,]', '', whole)}.{decimals}")
    return Decimal(re.sub("[.,]", "", joined))


def _is_decimal(whole: str, mark: str, decimals: str, has_decimal_comma: bool) -> bool:
    if not mark or mark in whole:
        return False
    if "," in whole or "." in whole or whole in ("", "0"):
        return True
    if mark == ",":
        return len(decimals) < _GROUP
    return not (has_decimal_comma and len(decimals) == _GROUP and len(whole) <= _GROUP)


def read_number(text: str) -> Decimal | None:
    return next(read_numbers(text), None)


def last_number(text: str, has_decimal_comma: bool = False) -> Decimal | None:
    return next(reversed([*read_numbers(text, has_decimal_comma)]), None)


def equated_number(text: str) -> Decimal | None:
    r"""Returns the number that a short answer gives; None if the answer gives no number.

    It is the number after the last equals sign that is not followed by a calculation. Without an equals sign, it is
    the number at the beginning or after an "is". Otherwise, asides ("in 2 months") are skipped, and it is the first
    number after the last "so".
    """
    plain = plain_text(text)
    equated = [part for part in reversed(_EQUALS.split(plain)) if _NUMBER.search(part)]
    parts = equated if _EQUALS.search(plain) else (plain, *reversed(_IS.split(plain)))
    if (value := next(filter(_begins_with_value, parts), None)) is not None:
        return read_number(value)
    said = next(filter(_NUMBER.search, reversed(_SO.split(equated[0]))), "") if equated else ""
    number = read_number(_ASIDE.sub(" ", said))
    return read_number(said) if number is None else number


def _begins_with_value(text: str) -> bool:
    found = _NUMBER.search(text)
    return bool(found and _OPENING.fullmatch(text, 0, found.start()) and not _CALCULATED_WITH.match(text, found.end()))


def same_number(given: str, reference: str) -> bool:
    """Returns whether two texts give the same number; False if the first text has no number."""
    number = read_number(given)
    return number is not None and number == read_number(reference)


def stated_number(text: str) -> Decimal | None:
    r"""Returns the number that is stated as the answer, otherwise the last number; None if there is no number.

    The answer stands after the last ``Answer:`` or "answer is" that is followed by a number, below a heading "Answer",
    or after an ``A:`` at the start of the last line.
    """
    plain = plain_text(text)
    sentences = (sentence for said in reversed(_STATED.findall(plain)) for sentence in _SENTENCE_END.split(said))
    numbers = (number for number in map(equated_number, sentences) if number is not None)
    stated = next(numbers, None)
    return last_number(plain) if stated is None else stated
