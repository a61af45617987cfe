"""``SqlSession``: asks the warehouse and prints the answer, for the command, for a pipe and for the prompt."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nightjar.cli.sql_output import Format, output_file, print_parquet, print_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from nightjar.warehouse import QueryResult, Warehouse


@dataclass
class SqlSession:
    """How questions are asked and answers are printed.

    Attributes:
        warehouse: what is asked.
        format: how rows are printed.
        timeout_seconds: how long a query may run.
        is_full: whether a table on a terminal shows all of every cell and all rows.
        output: file to write to; None for stdout.
    """

    warehouse: Warehouse
    format: Format
    timeout_seconds: float
    is_full: bool = False
    output: Path | None = None

    def answer(self, text: str, given: Mapping[str, object] | None = None) -> None:
        """Runs a statement, or the named query where the text is one word, and prints rows and their number.

        Raises:
            WarehouseError: the query fails, or no query has this name.
            ConfigError: the file cannot be written.
        """
        from nightjar.warehouse.reading.named_queries import question

        asked = question(text, given)
        start = time.perf_counter()
        if self.format is Format.PARQUET:
            table = self.warehouse.query_arrow(asked.sql, asked.parameters, timeout_seconds=self.timeout_seconds)
            self._report(table.num_rows, time.perf_counter() - start, lambda: self._write_parquet(table))
        else:
            result = self.warehouse.query(asked.sql, asked.parameters, timeout_seconds=self.timeout_seconds)
            self._report(len(result.rows), time.perf_counter() - start, lambda: self.show(result))

    def show(self, result: QueryResult) -> None:
        """Prints rows that are there already.

        Raises:
            ConfigError: the file cannot be written.
        """
        if self.output is None:
            print_rows(result, self.format, sys.stdout, is_full=self.is_full)
            return
        with output_file(self.output) as file, io.TextIOWrapper(file, "utf-8", newline="\n") as stream:
            print_rows(result, self.format, stream, is_full=self.is_full)

    def _write_parquet(self, table: pa.Table) -> None:
        if self.output is None:
            print_parquet(table, sys.stdout.buffer)
            return
        with output_file(self.output) as file:
            print_parquet(table, file)

    def _report(self, count: int, seconds: float, write: Callable[[], None]) -> None:
        write()
        sys.stdout.flush()
        where = f", written to {self.output}" if self.output else ""
        typer.echo(f"{count:,} row{'' if count == 1 else 's'} in {seconds:.2f} s{where}", err=True)
