r"""Recorded completions of a real model, played back.

A recording is a JSONL file. Each line holds a question and what the model said to it; other fields
are ignored::

    {"question": "A robe takes 2 bolts of blue fiber ...", "completion": "2 + 1 = 3\nA: 3"}
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import orjson

from nightjar.errors import DatasetError
from nightjar.testing.answers import Answer, Message, last_user_text

_LONGEST_STEP = 16
_SHOWN_CHARACTERS = 80


class Recording:
    """Answers with what a model said when it was asked the same question before.

    The last user message is the question, or contains it among instructions and worked examples; of
    several contained questions the longest counts. A question with several completions gets one
    after the other, in order of arrival, and then the first again.

    Args:
        completions: question to its completions, at least one each.
        name: how messages call the recording.

    Example:
        >>> recording = Recording({"1 + 1?": ["2", "two"]})
        >>> question = {"role": "user", "content": "Answer briefly: 1 + 1?"}
        >>> [recording.answer([question]).text for _ in range(3)]
        ['2', 'two', '2']
    """

    def __init__(self, completions: Mapping[str, Sequence[str]], *, name: str = "recording") -> None:
        self.name = name
        self._questions = TextIndex(completions)
        self._completions = {question: itertools.cycle(texts) for question, texts in completions.items()}

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Reads a recording from a JSONL file; raises ``DatasetError`` where it is missing, empty or broken."""
        path = Path(path)
        completions: dict[str, list[str]] = {}
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    question, completion = _parse_line(line, f"{path}:{number}")
                    completions.setdefault(question, []).append(completion)
        except OSError as error:
            raise DatasetError(f"Cannot read recording {str(path)!r}: {error.strerror}.") from error
        if not completions:
            raise DatasetError(f"Recording {str(path)!r} is empty.")
        return cls(completions, name=path.name)

    def __len__(self) -> int:
        """Returns the number of different questions."""
        return len(self._completions)

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Answers with the question's next recorded completion; raises ``DatasetError`` where there is none."""
        text = last_user_text(messages)
        question = self._questions.longest_in(text)
        if question is None:
            shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
            raise DatasetError(f"The question is not in the recording {self.name!r}: {shown!r}")
        return Answer(question=question, text=next(self._completions[question]))


class TextIndex:
    """Finds the longest of many known texts inside another text.

    A known text is filed under its first ``step`` slices of ``step`` characters each. Wherever it
    occurs, one of those slices begins at a multiple of ``step``, so a search looks up only every
    ``step``-th slice of the text at hand, however many texts are known.

    Args:
        texts: the known texts, none of them empty.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(texts)
        self._places: dict[int, dict[str, set[tuple[int, int]]]] = {}
        for text in self._texts:
            step = min(_LONGEST_STEP, (len(text) + 1) // 2)
            slices = self._places.setdefault(step, {})
            for offset in range(step):
                piece = text[offset : offset + step]
                slices.setdefault(piece, set()).add((offset, len(text)))

    def longest_in(self, text: str) -> str | None:
        """Returns the longest known text that ``text`` is or contains, or None."""
        if text in self._texts:
            return text
        longest = ""
        for step, slices in self._places.items():
            for start in range(0, len(text), step):
                for offset, length in slices.get(text[start : start + step], ()):
                    if length > len(longest) and start >= offset:
                        candidate = text[start - offset : start - offset + length]
                        if candidate in self._texts and len(candidate) == length:
                            longest = candidate
        return longest or None


def _parse_line(line: bytes, place: str) -> tuple[str, str]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DatasetError(f"{place} is not valid JSON: {error}.") from error
    question = row.get("question") if isinstance(row, dict) else None
    completion = row.get("completion") if isinstance(row, dict) else None
    if not (isinstance(question, str) and question.strip() and isinstance(completion, str)):
        raise DatasetError(f"{place} needs the texts 'question' and 'completion'.")
    return question.strip(), completion
