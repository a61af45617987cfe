"""SQL in the page: ``/sql?q=FROM runs``, and the answer as a file: ``/sql/answer.csv?q=…``.

A statement reads, on the same locked connection and within the same time as that of ``nightjar sql``; a single word
is a named query, whose parameters are ``p.NAME``. All is in the address, so that a link can be sent.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from nightjar.errors import MissingWarehouseError, WarehouseError
from nightjar.serving.asking import free_statement
from nightjar.serving.charting import Bars, bars, line, numeric_columns
from nightjar.serving.plotting import Plot
from nightjar.serving.templating import page
from nightjar.warehouse import QueryResult, Warehouse
from nightjar.warehouse.reading.named_queries import NamedQuery, is_name, named_queries, question
from nightjar.warehouse.reading.result_values import value_text, write_csv, write_json
from nightjar.warehouse.reading.statements import unfinished

router = APIRouter()

SHOWN_ROWS = 1_000
MOST_ROWS = 20_000
"""So many rows a file has: they are in the server's memory."""
_LARGEST_BYTES = 32_000_000
_SHOWN_CELLS = 50_000
LONGEST_CELL = 160
_WHOLE, _LARGE = 1e6, 1e15
"""Between these a number has more than six digits before its point, all of which are shown."""
_WRITERS: dict[str, tuple[Callable[[QueryResult, io.StringIO], None], str]] = {
    "csv": (write_csv, "text/csv"),
    "json": (write_json, "application/json"),
}
_DRAWINGS: dict[str, Callable[[QueryResult, str, str], Plot | Bars]] = {"bars": bars, "line": line}
_BOUNDED = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:(?:SELECT|WITH|FROM|VALUES|TABLE|PIVOT|UNPIVOT|DESCRIBE|SUMMARIZE|SHOW)\b|\()",
    re.IGNORECASE | re.DOTALL,
)
"""How what can be a part of another statement begins; the others have short answers, or are refused."""


class Asked(BaseModel):
    """What somebody asks; an empty text is nothing."""

    q: str = ""
    x: str = ""
    y: str = ""
    chart: Literal["", "bars", "line"] = ""


@dataclass(frozen=True)
class Answer:
    """What is shown of a result.

    Attributes:
        result: its rows, ``SHOWN_ROWS`` at most.
        is_cut: whether there are more.
        numeric: columns of numbers.
        drawing: of two of its columns, if that was asked.
    """

    result: QueryResult
    is_cut: bool
    numeric: list[str]
    drawing: Plot | Bars | None = None


@router.get("/sql")
def sql(request: Request, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    """Shows what a statement answers, or what there is to ask."""
    warehouse: Warehouse = request.app.state.warehouse
    given = _given(request)
    query = named_queries().get(asked.q.strip()) if is_name(asked.q) else None
    answer, problem = None, ""
    if asked.q.strip() and not _lacks(query, given):
        try:
            answer = _answer(warehouse, asked, given)
        except MissingWarehouseError:
            raise
        except WarehouseError as error:
            problem = str(error)
    return page(
        request,
        "sql.html",
        400 if problem else 200,
        asked=asked,
        given=given,
        query=query,
        answer=answer,
        problem=problem,
        queries=named_queries().values(),
        schema=_schema(warehouse),
        address={"q": asked.q, **{f"p.{name}": value for name, value in given.items()}},
        text=_cell,
        most=MOST_ROWS,
    )


@router.get("/sql/answer.{kind}")
def download(request: Request, kind: Literal["csv", "json"], asked: Annotated[Asked, Query()]) -> Response:
    """Returns an answer as a file."""
    try:
        result = ask(request.app.state.warehouse, asked.q, _given(request), MOST_ROWS)
    except WarehouseError as error:
        raise HTTPException(400, str(error)) from error
    write, media_type = _WRITERS[kind]
    text = io.StringIO()
    write(result, text)
    headers = {"content-disposition": f'attachment; filename="answer.{kind}"'}
    return Response(text.getvalue().encode("utf-8", "replace"), media_type=media_type, headers=headers)


def ask(warehouse: Warehouse, text: str, given: dict[str, str], most_rows: int) -> QueryResult:
    """Returns the first rows that a statement or a named query answers.

    Raises:
        WarehouseError: as ``Warehouse.query``; or it is not one statement.
    """
    asked = question(text, given)
    with free_statement():
        statements = warehouse.statements(asked.sql)
        if len(statements) != 1:
            raise WarehouseError(f"Expected one SQL statement, found {len(statements)}.")
        statement = unfinished(statements[0].text)
        if _BOUNDED.match(statement):
            statement = f"FROM ({statement}\n) LIMIT {most_rows}"
        return warehouse.query(statement, asked.parameters, largest_bytes=_LARGEST_BYTES)


def _answer(warehouse: Warehouse, asked: Asked, given: dict[str, str]) -> Answer:
    found = ask(warehouse, asked.q, given, SHOWN_ROWS + 1)
    most = max(1, min(SHOWN_ROWS, _SHOWN_CELLS // max(1, len(found.columns))))
    is_cut = len(found.rows) > most
    shown = QueryResult(found.columns, found.types, found.rows[:most])
    numeric = numeric_columns(shown)
    draw = _DRAWINGS.get(asked.chart)
    y = asked.y if asked.y in numeric else next((name for name in numeric if name != asked.x), "")
    x = asked.x if asked.x in shown.columns else next((name for name in shown.columns if name != y), y)
    return Answer(shown, is_cut, numeric, draw(shown, x, y) if draw and y else None)


def _given(request: Request) -> dict[str, str]:
    """Returns the values of parameters."""
    asked = request.query_params.items()
    return {name.removeprefix("p."): value for name, value in asked if name.startswith("p.") and value}


def _lacks(query: NamedQuery | None, given: dict[str, str]) -> bool:
    """Says whether a named query was chosen, and its parameters are still to be given."""
    return query is not None and any(one.default is None and one.name not in given for one in query.parameters)


def _schema(warehouse: Warehouse) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Returns each table with what it is and its columns."""
    tables = groupby(warehouse.catalog().records(), key=lambda row: (row["table"], row["about"] or ""))
    return [(name, about, list(columns)) for (name, about), columns in tables]


def _cell(value: Any) -> str:
    """Returns a value as a page shows it: fractions with six digits, long texts cut; files have them whole.

    Example:
        >>> _cell(2 / 3), _cell(1.0), _cell(1234567.8)
        ('0.666667', '1', '1234568')
    """
    if isinstance(value, float):
        return f"{value:.0f}" if _WHOLE <= abs(value) < _LARGE else f"{value:.6g}"
    text = value_text(value)
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…"
