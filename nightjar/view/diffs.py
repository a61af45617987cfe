"""Splits a unified diff into its files, and compares two texts word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import groupby, takewhile

LONGEST_DIFF = 200_000
_UNFOLDED = 20_000
_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_WORD = re.compile(r"\s{0,100}\S{1,100}|\s{1,100}")
_LONGEST_COMPARED = 500_000
MOST_WORDS = 1_500
"""The words compared between the first and the last difference. The time grows with the square of this number."""
_CONTEXT = 20
"""The equal words shown before and after a difference. The equal words in between are folded."""
_KINDS = {"+": "new", "-": "gone", " ": "same", "": "same", "\\": "same"}


@dataclass(frozen=True)
class Lines:
    """Lines that are ``new``, ``gone``, the ``same``, or a ``head`` of a file or of a hunk."""

    kind: str
    text: str


@dataclass
class ChangedFile:
    name: str = ""
    added: int = 0
    removed: int = 0
    lines: list[Lines] = field(default_factory=list)
    is_open: bool = True


def changed_files(diff: str) -> list[ChangedFile]:
    """Returns the files of the first 200,000 characters of a unified diff. Other text is one file without a name."""
    files: list[ChangedFile] = []
    length = 0
    for _, run in groupby(_numbered(diff[:LONGEST_DIFF].rstrip("\n")), key=lambda line: line[0]):
        lines = [(kind, text) for _, kind, text in run]
        length += sum(len(text) for _, text in lines)
        files.append(_changed_file(lines, is_open=not files or length <= _UNFOLDED))
    return files


def _changed_file(lines: list[tuple[str, str]], *, is_open: bool) -> ChangedFile:
    kinds = [kind for kind, _ in lines]
    runs = [Lines(kind, "\n".join(text for _, text in run)) for kind, run in groupby(lines, key=lambda line: line[0])]
    name = _name([text for kind, text in lines if kind == "head"])
    return ChangedFile(name, kinds.count("new"), kinds.count("gone"), runs, is_open)


def _numbered(diff: str) -> Iterator[tuple[int, str, str]]:
    """Yields the number of the file, the kind and the text of each line.

    The counts of a hunk tell a removed line that begins with ``--`` from the head of a file.
    """
    number, old, new, is_head = 0, 0, 0, False
    for line in diff.split("\n"):
        if (old > 0 or new > 0) and line[:1] in _KINDS:
            kind = _KINDS[line[:1]]
            old, new = old - (kind != "new" and line[:1] != "\\"), new - (kind != "gone" and line[:1] != "\\")
        elif hunk := _HUNK.match(line):
            kind, is_head = "head", False
            old, new = (int(count) if count is not None else 1 for count in hunk.groups())
        else:
            old = new = 0
            starts = line.startswith("diff --git ") or (line.startswith("--- ") and not is_head)
            number, is_head = number + starts, starts or is_head
            kind = "head" if is_head else "same"
        yield number, kind, line


def _name(heads: list[str]) -> str:
    for start, side in (("+++ ", "b/"), ("--- ", "a/")):
        for line in heads:
            name = line.removeprefix(start).partition("\t")[0]
            if line.startswith(start) and name != "/dev/null":
                return name.removeprefix(side)
    return heads[0].rpartition(" b/")[2] if heads else ""


@dataclass(frozen=True)
class Change:
    """Words that are the ``same``, ``gone`` from the first text, ``new`` in the second, or the same and ``folded``."""

    kind: str
    text: str

    @property
    def words(self) -> int:
        return len(self.text.split())


@dataclass(frozen=True)
class Difference:
    """How one text becomes another. Unless it ``is_whole``, the end of the texts was not compared."""

    changes: list[Change]
    is_whole: bool

    @property
    def folded(self) -> list[Change]:
        """The changes, with long equal parts folded except for the words next to a difference."""
        last = len(self.changes) - 1
        return [
            part
            for place, change in enumerate(self.changes)
            for part in _folded(change, is_first=place == 0, is_last=place == last)
        ]


def word_difference(before: str, after: str) -> Difference:
    """Compares two texts word by word, at most 1,500 words of each between the first and the last difference."""
    old, new = _words(before), _words(after)
    start = _common(old, new)
    old, same, new = old[start:], new[:start], new[start:]
    end = _common(old[::-1], new[::-1])
    old, new, rest = old[: len(old) - end], new[: len(new) - end], new[len(new) - end :]
    is_whole = max(len(old), len(new)) <= MOST_WORDS and max(len(before), len(after)) <= _LONGEST_COMPARED
    changes = [Change("same", "".join(same)), *_changes(old[:MOST_WORDS], new[:MOST_WORDS])]
    changes += [Change("same", "".join(rest))] if is_whole else []
    return Difference([change for change in changes if change.text], is_whole)


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:_LONGEST_COMPARED])


def _common(old: list[str], new: list[str]) -> int:
    """Returns the number of words that both texts begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _changes(old: list[str], new: list[str]) -> Iterator[Change]:
    for kind, i, j, k, m in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            yield Change("same", "".join(new[k:m]))
        else:
            yield Change("gone", "".join(old[i:j]))
            yield Change("new", "".join(new[k:m]))


def _folded(change: Change, *, is_first: bool, is_last: bool) -> Iterator[Change]:
    words = _WORD.findall(change.text) if change.kind == "same" else []
    start, end = 0 if is_first else _CONTEXT, len(words) - (0 if is_last else _CONTEXT)
    if end - start <= 2 * _CONTEXT:
        yield change
        return
    for kind, part in (("same", words[:start]), ("folded", words[start:end]), ("same", words[end:])):
        if part:
            yield Change(kind, "".join(part))
