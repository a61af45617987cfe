"""Parts of a run, such as ``0a1b2c3d4e5f.part-2-of-4``. A part is a block of whole groups that runs on its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

PART_NAME = r"^[\w-]+\.part-[1-9]\d*-of-[1-9]\d*$"

_NAME = re.compile(r"([\w-]+)\.part-([1-9]\d*)-of-([1-9]\d*)")


@dataclass(frozen=True)
class Part:
    """Part ``number`` (from 1) of ``count`` of a run."""

    run_id: str
    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.run_id}.part-{self.number}-of-{self.count}"

    @classmethod
    def of(cls, run_id: str) -> Self | None:
        match = _NAME.fullmatch(run_id)
        if match is None or int(match[2]) > int(match[3]):
            return None
        return cls(match[1], int(match[2]), int(match[3]))

    @classmethod
    def all_of(cls, run_id: str, count: int) -> list[Self]:
        return [cls(run_id, number, count) for number in range(1, count + 1)]

    def block(self, total: int) -> slice:
        """Returns the part's slice of ``total`` examples. The lengths of the parts differ by at most one."""
        return slice((self.number - 1) * total // self.count, self.number * total // self.count)
