"""The columns of a table that people choose. The address of a page has the choice: ``?columns=cost&columns=tags``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Columns:
    """The columns that can be chosen, and those that are shown.

    ``chosen`` is the choice of the address, which a narrow window respects, too. It is empty without a choice.
    """

    names: Sequence[str]
    shown: Sequence[str]
    chosen: Collection[str]
    roomy: Collection[str] = ()
    """Columns that are also hidden in a window of medium width."""

    @classmethod
    def of(
        cls,
        usual: Mapping[str, str],
        more: Iterable[str],
        asked: Collection[str],
        rows: Sequence[Mapping[str, Any]],
        roomy: Collection[str] = (),
    ) -> Columns:
        """Returns the columns for the choice ``asked``. Unknown names in it are ignored.

        ``usual`` maps columns to fields of the rows. Without a choice, the usual columns are shown that are not empty.
        """
        names = [*usual, *(name for name in more if name not in usual)]
        chosen = [name for name in names if name in asked]
        filled = [name for name, field in usual.items() if any(row.get(field) not in (None, "", []) for row in rows)]
        return cls(names, chosen or filled, chosen, roomy)

    def spare(self, name: str) -> str:
        """Returns the CSS classes of a cell: a narrow window hides a column unless it was chosen."""
        return "" if name in self.chosen else "spare roomy" if name in self.roomy else "spare"
