"""Numbers as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = re.compile(r"-?(?:\$\s?)?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")
_ANSWER_LINE = re.compile(r"(?:^|\b)(?:A|Answer|answer|ANSWER)\s*:\s*([^\n]*)")


def read_number(text: str) -> Decimal | None:
    """Returns the first number in a text; None where there is none.

    Example:
        >>> read_number("$1,234.50"), read_number("25%"), read_number("7 eggs"), read_number("none")
        (Decimal('1234.50'), Decimal('25'), Decimal('7'), None)
    """
    found = _NUMBER.search(text)
    return None if found is None else Decimal(re.sub(r"[$,\s]", "", found.group()))


def last_number(text: str) -> Decimal | None:
    """Returns the last number in a text; None where there is none.

    Example:
        >>> last_number("3 of 1,200.0"), last_number("none")
        (Decimal('1200.0'), None)
    """
    found = _NUMBER.findall(text)
    return read_number(found[-1]) if found else None


def same_number(given: str, reference: str) -> bool:
    """Says whether two texts give the same number; False where what is given has none.

    Example:
        >>> same_number("$18.00.", "18"), same_number("no idea", "none")
        (True, False)
    """
    number = read_number(given)
    return number is not None and number == read_number(reference)


def stated_number(text: str) -> str:
    r"""Returns what follows the last ``A:`` or ``Answer:``, else the last number as it is written, else nothing.

    Example:
        >>> stated_number("6 * 7 = 42\nAnswer: 42 eggs, of 50"), stated_number("First 12, then $7")
        ('42 eggs, of 50', '$7')
    """
    found = _ANSWER_LINE.findall(text) or _NUMBER.findall(text)
    return str(found[-1]) if found else ""
