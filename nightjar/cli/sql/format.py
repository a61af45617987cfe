"""The formats that ``nightjar sql`` prints rows in; light, because the command's help names them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    PARQUET = "parquet"


_SUFFIXES = {
    "": Format.TABLE,
    ".txt": Format.TABLE,
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".md": Format.MARKDOWN,
    ".parquet": Format.PARQUET,
}


def format_of(path: Path | None) -> Format:
    """Returns the format that the suffix of a file stands for; a table without a suffix or a file.

    Raises:
        typer.BadParameter: it stands for none.

    Example:
        >>> format_of(Path("best.csv")).value, format_of(None).value
        ('csv', 'table')
    """
    suffix = path.suffix.lower() if path else ""
    if suffix not in _SUFFIXES:
        known = ", ".join(filter(None, _SUFFIXES))
        raise typer.BadParameter(
            f"--output {str(path)!r} ends in {suffix!r}, which stands for no format. Choose one of: {known}, or say "
            "which with --format"
        )
    return _SUFFIXES[suffix]
