"""Parts of a run: blocks of whole groups that run on their own, perhaps on other machines.

A part is named after its run: ``0a1b2c3d4e5f.part-2-of-4``. When all parts have ended, they are joined into the run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

PART_NAME = r"^[\w-]+\.part-[1-9]\d*-of-[1-9]\d*$"
"""The form of a part's name."""

_NAME = re.compile(r"([\w-]+)\.part-([1-9]\d*)-of-([1-9]\d*)")


@dataclass(frozen=True)
class Part:
    """Part ``number`` (from 1) of ``count`` of a run.

    Example:
        >>> [str(part) for part in Part.all_of("0a1b", 2)]
        ['0a1b.part-1-of-2', '0a1b.part-2-of-2']
    """

    run_id: str
    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.run_id}.part-{self.number}-of-{self.count}"

    @classmethod
    def of(cls, run_id: str) -> Self | None:
        """Returns the part with this run id; None for the id of a whole run."""
        match = _NAME.fullmatch(run_id)
        if match is None or int(match[2]) > int(match[3]):
            return None
        return cls(match[1], int(match[2]), int(match[3]))

    @classmethod
    def all_of(cls, run_id: str, count: int) -> list[Self]:
        return [cls(run_id, number, count) for number in range(1, count + 1)]

    def block(self, total: int) -> slice:
        """Returns the part's slice of ``total`` examples; the parts differ in length by at most one."""
        return slice((self.number - 1) * total // self.count, self.number * total // self.count)
