"""``nightjar sql``: queries the warehouse."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.options import WarehouseOption, argument, option
from nightjar.cli.output import print_json
from nightjar.cli.sql.input import values_of
from nightjar.cli.sql.output import Format, format_of
from nightjar.cli.sql.session import (
    SqlSession,
    answer_each,
    checked_seconds,
    print_catalog,
    print_queries,
    query_records,
)
from nightjar.cli.terminal import echo
from nightjar.errors import WarehouseError
from nightjar.warehouse import Unlocked, Warehouse, resolve_warehouse
from nightjar.warehouse.reading.named_queries import find_query, named_queries
from nightjar.warehouse.reading.process import QUERY_TIMEOUT_SECONDS, prepare

_EXAMPLES = """
Examples:
  nightjar sql "SELECT model, avg_reward, stderr, coverage FROM leaderboard WHERE env_id = 'gsm8k'"
  nightjar sql "SELECT chain, count(*) AS failures FROM errors GROUP BY ALL ORDER BY failures DESC"
  nightjar sql "SELECT * FROM example_rewards ORDER BY avg_reward LIMIT 10" --format markdown
  nightjar sql hardest -P env=gsm8k -P limit=5
  nightjar sql 'FROM runs WHERE avg_reward > $least LIMIT $n' -P least=0.5 -P n=10
  nightjar sql --list
"""


def sql(
    statement: Annotated[
        str | None, argument("Read-only SQL, or the name of a query (default: read the prompt or stdin).")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        option("Value of $NAME. What it is compared with decides its type.", "--parameter", "-P", metavar="NAME=VALUE"),
    ] = None,
    list_queries: Annotated[
        bool, option("List the named queries; with a name, print the query's SQL.", "--list")
    ] = False,
    output_format: Annotated[
        Format | None,
        option(
            "table, csv, json, markdown or parquet (default: the suffix of --output).", "--format", metavar="FORMAT"
        ),
    ] = None,
    as_json: Annotated[bool, option("Same as --format json.", "--json")] = False,
    output: Annotated[Path | None, option("File to write the rows to.")] = None,
    full: Annotated[bool, option("Show all rows and whole cells on a terminal, as in a pipe.", "--full")] = False,
    timeout: Annotated[
        float, option("Seconds that a query may take.", callback=checked_seconds)
    ] = QUERY_TIMEOUT_SECONDS,
    write: Annotated[
        bool,
        option("Allow any statement without limits, also COPY, ATTACH and CREATE; runs stay unchanged.", "--write"),
    ] = False,
    warehouse: WarehouseOption = None,
) -> None:
    """Query the warehouse in DuckDB's SQL, read-only. Rows go to stdout; the number of rows goes to stderr.

    Tables: runs, rollouts, attempts, examples, prices, metrics, errors. Views: leaderboard, history, pass_at_k,
    regressions, example_rewards, cost, retries. Macro: flips(a, b). Named queries: --list.

    -P n=5 gives $n the value 5. The statement decides the type: $n is a number in LIMIT $n and in reward > $n, and a
    text in a comparison with a text. If the statement does not decide the type, add the type, as in
    to_days($n::INTEGER). Single quotes protect $n from the shell.

    Examples: nightjar sql "FROM leaderboard" --format csv

    nightjar sql hardest -P env=gsm8k -P limit=5

    nightjar sql 'FROM runs WHERE env_id = $env AND started_at > $day LIMIT $n' -P env=gsm8k -P day=2026-11-01 -P n=5
    """
    if list_queries:
        _list(statement, as_json or output_format is Format.JSON)
        return
    chosen = Format.JSON if as_json else output_format
    shown_as = chosen or format_of(output)
    if shown_as is Format.PARQUET and output is None and sys.stdout.isatty():
        raise typer.BadParameter(
            "Parquet cannot be printed on a terminal: name a file with --output, or redirect stdout"
        )
    if not write:
        prepare()
    asked = (Unlocked if write else Warehouse)(resolve_warehouse(warehouse))
    session = SqlSession(asked, shown_as, timeout, full, output)
    _answer(session, statement, values_of(parameters or []), may_prompt=chosen is None and output is None)


def _answer(session: SqlSession, statement: str | None, given: dict[str, str], *, may_prompt: bool) -> None:
    if statement is not None:
        session.answer(statement, given)
    elif may_prompt and sys.stdin.isatty() and sys.stdout.isatty():
        from nightjar.cli.sql.prompt import SqlPrompt

        SqlPrompt(session).run()
    elif piped := _piped():
        answer_each(session, piped, given)
    else:
        _show_catalog(session)


def _list(name: str | None, as_json: bool) -> None:
    queries = [find_query(name)] if name else list(named_queries().values())
    if as_json:
        print_json(query_records(queries))
    elif name:
        echo(queries[0].text, nl=False)
    else:
        print_queries(queries)
        echo("Next: nightjar sql hardest -P env=gsm8k. For its SQL: nightjar sql --list hardest", err=True)


def _piped() -> str:
    """Returns the text of stdin; an empty text if stdin is neither a pipe nor a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # a test's stdin
        return sys.stdin.read().strip()
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return ""
    try:
        return sys.stdin.read().strip()
    except UnicodeDecodeError as error:
        raise WarehouseError(f"stdin is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _show_catalog(session: SqlSession) -> None:
    if session.format is Format.PARQUET:
        raise typer.BadParameter("Parquet can only hold the rows of a statement: give one")
    catalog = session.warehouse.catalog()
    if session.format is Format.TABLE and session.output is None:
        print_catalog(catalog)
        echo(_EXAMPLES, nl=False)
    else:
        session.show(catalog)
