"""Tables of markdown, for artifacts and issues."""

from __future__ import annotations

from collections.abc import Sequence


def table(heading: str, rows: Sequence[str]) -> str:
    """Returns a table; nothing where there are no rows.

    Args:
        heading, rows: cells, with `` | `` between them; ``cell`` makes any text one.
    """
    rule = " | ".join("---" for _ in heading.split("|"))
    return "\n".join(f"| {row} |" for row in (heading, rule, *rows)) if rows else ""


def cell(text: object) -> str:
    """Returns the first line of a text as a cell."""
    return str(text).partition("\n")[0].replace("|", "¦")
