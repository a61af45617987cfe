"""Splits a unified diff into its files, with added and removed lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

LONGEST_DIFF = 200_000
_UNFOLDED = 20_000
_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
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
