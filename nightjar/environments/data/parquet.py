"""Reads Parquet files with DuckDB, because Arrow is an extra. The warehouse is in a higher layer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any


def read_parquet(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Returns the rows of Parquet files with the same columns, in the order of the files. Times are in UTC.

    Raises ``duckdb.Error`` for a file that is damaged or missing.
    """
    import duckdb

    with closing(duckdb.connect()) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        cursor = connection.execute("FROM read_parquet(?)", [[str(file) for file in files]])
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
