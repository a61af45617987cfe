"""``nightjar sql``: asks the warehouse.

nightjar sql "SELECT model, avg_reward, stderr FROM leaderboard WHERE env_id = 'gsm8k'"
nightjar sql                       # what there is to ask
"""

from __future__ import annotations

import csv
import json
import math
import sys
import textwrap
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from nightjar.warehouse import QueryResult

_LONGEST_CELL = 80
_SHORTEST_CUT = 12
_GAP = 3
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")

_EXAMPLES = """\
Examples:
  nightjar sql "SELECT model, avg_reward, stderr, coverage FROM leaderboard WHERE env_id = 'gsm8k'"
  nightjar sql "SELECT chain, count(*) AS failures FROM errors GROUP BY ALL ORDER BY failures DESC"
  nightjar sql "SELECT * FROM example_rewards ORDER BY avg_reward LIMIT 10" --format markdown
"""


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"


def sql(
    statement: Annotated[
        str | None,
        typer.Argument(
            help="One statement that reads. Left out: the tables, their columns, and examples.",
            show_default=False,
        ),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(
            help="Folder of the warehouse; else NIGHTJAR_WAREHOUSE, else outputs/warehouse.",
            show_default=False,
        ),
    ] = None,
    output_format: Annotated[Format, typer.Option("--format", help="How the rows are printed.")] = Format.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
) -> None:
    """Ask the warehouse in SQL (DuckDB's). Reads only; rows to stdout, their number to stderr.

    Tables: runs, rollouts, metrics, errors. Views: leaderboard, example_rewards.

    Example: nightjar sql "SELECT model, avg_reward FROM leaderboard" --format csv
    """
    from nightjar.warehouse import Warehouse, resolve_warehouse

    house = Warehouse(resolve_warehouse(warehouse))
    chosen = Format.JSON if as_json else output_format
    if statement is None and chosen is Format.TABLE:
        _print_catalog(house.catalog())
        return
    result = house.catalog() if statement is None else house.query(statement)
    _PRINTERS[chosen](result)
    count = len(result.rows)
    typer.echo(f"{count:,} row{'' if count == 1 else 's'}", err=True)


def _print_catalog(catalog: QueryResult) -> None:
    """Prints, for each table, what a row is, the columns, and what is to be known of them."""
    for (table, about), rows in groupby(catalog.rows, key=lambda row: row[:2]):
        columns = [row[2:] for row in rows]
        typer.echo(f"{table}: {about}")
        names = ", ".join(f"{name} {kind}" for name, kind, _ in columns)
        typer.echo(textwrap.fill(names, 96, initial_indent="  ", subsequent_indent="  "))
        for name, _, note in columns:
            if note:
                typer.echo(f"  * {name}: {note}")
        typer.echo()
    typer.echo(_EXAMPLES, nl=False)


def _print_csv(result: QueryResult) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([_text(value) for value in row] for row in result.rows)


def _print_json(result: QueryResult) -> None:
    readers = [json.loads if kind == "JSON" else _plain for kind in result.types]
    records = [
        {
            name: None if value is None else reader(value)
            for name, reader, value in zip(result.columns, readers, row, strict=True)
        }
        for row in result.rows
    ]
    typer.echo(json.dumps(records, indent=2, ensure_ascii=False, default=_text))


def _print_markdown(result: QueryResult) -> None:
    rules = ["---:" if kind.startswith(_NUMBERS) else "---" for kind in result.types]
    rows = ([_text(value) for value in row] for row in result.rows)
    for cells in (result.columns, rules, *rows):
        escaped = (cell.replace("|", r"\|").replace("\n", "<br>") for cell in cells)
        typer.echo(f"| {' | '.join(escaped)} |")


def _print_table(result: QueryResult) -> None:
    """Prints a table, or, where a terminal is too narrow for it, one block of lines per row."""
    from rich.console import Console

    if result.columns == ("explain_key", "explain_value"):
        typer.echo("\n".join(plan for _, plan in result.rows))
        return
    cells = [[_line(value) for value in row] for row in result.rows]
    longest = [max(map(len, column)) for column in zip(result.columns, *cells, strict=True)]
    console = Console()
    if not console.is_terminal:
        console = Console(width=sum(longest) + _GAP * len(longest))
    if cut := _widest_cut(longest, console.width):
        console.print(_grid(result, cells, cut))
        return
    room = console.width - max(map(len, result.columns)) - _GAP - 1
    for number, row in enumerate(cells, start=1):
        console.print(_block(result.columns, [_cut(cell, room) for cell in row], f"row {number}"))


def _widest_cut(longest: list[int], room: int) -> int | None:
    """The length to cut cells to so that a table fits into the room; None when it cannot."""
    cuts = range(_LONGEST_CELL, _SHORTEST_CUT - 1, -1)
    fitting = (cut for cut in cuts if sum(min(width, cut) + _GAP for width in longest) <= room)
    return next(fitting, None)


def _grid(result: QueryResult, cells: list[list[str]], cut: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for name, kind in zip(result.columns, result.types, strict=True):
        justify: Literal["right", "left"] = "right" if kind.startswith(_NUMBERS) else "left"
        table.add_column(Text(_cut(name, cut)), justify=justify, no_wrap=True)
    for row in cells:
        table.add_row(*(Text(_cut(cell, cut)) for cell in row))
    return table


def _block(names: tuple[str, ...], row: list[str], title: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, title=title, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, cell in zip(names, row, strict=True):
        table.add_row(Text(name), Text(cell))
    return table


_PRINTERS: dict[Format, Callable[[QueryResult], None]] = {
    Format.TABLE: _print_table,
    Format.CSV: _print_csv,
    Format.JSON: _print_json,
    Format.MARKDOWN: _print_markdown,
}


def _line(value: Any) -> str:
    """One line without control characters, which a model's text may hold."""
    if value is None:
        return "NULL"
    line = " ".join(_text(value).split())
    return "".join(character if character.isprintable() else "?" for character in line)


def _cut(line: str, length: int) -> str:
    return line if len(line) <= length else f"{line[: max(0, length - 1)]}…"


def _text(value: Any) -> str:
    """A value in words: nothing for NULL, JSON for maps and lists, hexadecimal for bytes."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(_plain(value), ensure_ascii=False, default=_text)
    return str(value)


def _plain(value: Any) -> Any:
    """A value with what JSON has no word for replaced: null for NaN, text for other keys."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
