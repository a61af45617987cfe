"""Finds the extracted answer in a text."""

from __future__ import annotations

import re
from collections import deque

_LONGEST = 300
_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?")


class Answer:
    """An answer, of which the last occurrence in a text is marked. Long and empty answers occur nowhere."""

    def __init__(self, text: str | None) -> None:
        answer = (text or "").strip()
        self._pattern = _pattern(answer) if 0 < len(answer) <= _LONGEST else None

    def last_in(self, text: str) -> tuple[int, int] | None:
        """Returns the start and the end of the last occurrence. Parts of longer words and numbers do not count."""
        found = deque(self._pattern.finditer(text), maxlen=1) if self._pattern else None
        return found[0].span() if found else None


def _pattern(answer: str) -> re.Pattern[str]:
    if _PLAIN_NUMBER.fullmatch(answer):  # 1000 is the answer of a text with 1,000
        whole, point, fraction = answer.partition(".")
        body = ",?".join(re.escape(whole)) if whole[0] != "-" else "-" + ",?".join(whole[1:])
        body += re.escape(point + fraction)
    else:
        body = r"\s+".join(map(re.escape, answer.split()))
    before = r"(?<!\w)(?<!\d[.,])" if answer[0].isalnum() else ""
    after = r"(?!\w)(?![.,]\d)" if answer[-1].isalnum() else ""
    return re.compile(before + body + after)
