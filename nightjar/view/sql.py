"""SQL queries: ``/sql?q=FROM runs``, and the result as a file: ``/sql/answer.csv?q=…``.

A statement can only read, with the same restrictions and time limit as ``nightjar sql``. A single word is a named
query with the parameters ``p.NAME``. The address holds the complete query, so that it can be shared.
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

from nightjar.core.text import shortened
from nightjar.errors import MissingWarehouseError, WarehouseError
from nightjar.view.charts import Bars, Plot, bars, line, numeric_columns
from nightjar.view.pages import page, user_query
from nightjar.warehouse import QueryResult, Warehouse
from nightjar.warehouse.reading.known_values import require_known
from nightjar.warehouse.reading.named_queries import is_name, named_queries, question
from nightjar.warehouse.reading.result import value_text, write_csv, write_json
from nightjar.warehouse.reading.statements import unfinished

router = APIRouter()

SHOWN_ROWS = 1_000
MOST_ROWS = 20_000
"""The maximum number of rows in a file. The rows are held in the server's memory."""
_LARGEST_BYTES = 32_000_000
_SHOWN_CELLS = 50_000
LONGEST_CELL = 160
_WHOLE, _LARGE = 1e6, 1e15
"""Numbers between these limits have more than six digits before the point and are shown without fractions."""
_WRITERS: dict[str, tuple[Callable[[QueryResult, io.StringIO], None], str]] = {
    "csv": (write_csv, "text/csv"),
    "json": (write_json, "application/json"),
}
_DRAWINGS: dict[str, Callable[[QueryResult, str, str], Plot | Bars]] = {"bars": bars, "line": line}
_BOUNDED = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:(?:SELECT|WITH|FROM|VALUES|TABLE|PIVOT|UNPIVOT|DESCRIBE|SUMMARIZE|SHOW)\b|\()",
    re.IGNORECASE | re.DOTALL,
)
"""The start of a statement that can be a subquery. Other statements have short results or are refused."""


class Asked(BaseModel):
    q: str = ""
    x: str = ""
    y: str = ""
    chart: Literal["", "bars", "line"] = ""


@dataclass(frozen=True)
class Answer:
    """The rows of a result that are shown. ``is_cut`` means that there are more rows."""

    result: QueryResult
    is_cut: bool
    numeric: list[str]
    drawing: Plot | Bars | None = None


@router.get("/sql")
def show_sql(request: Request, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    warehouse: Warehouse = request.app.state.warehouse
    given = _given(request)
    query = named_queries().get(asked.q.strip()) if is_name(asked.q) else None
    answer, problem = None, ""
    needed = [one.name for one in query.parameters if one.default is None] if query else []
    if asked.q.strip() and given.keys() >= {*needed}:
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
    """Returns the first rows of a statement or named query.

    Raises ``WarehouseError`` like ``Warehouse.query``, and also for several statements or an unknown run.
    """
    asked = question(text, given)
    with user_query():
        statements = warehouse.statements(asked.sql)
        if len(statements) != 1:
            raise WarehouseError(f"Expected one SQL statement, found {len(statements)}.")
        statement = unfinished(statements[0].text)
        if _BOUNDED.match(statement):
            statement = f"FROM ({statement}\n) LIMIT {most_rows}"
        result = warehouse.query(statement, asked.parameters, largest_bytes=_LARGEST_BYTES)
        if not result.rows:
            require_known(asked, warehouse.query)
        return result


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
    asked = request.query_params.items()
    return {name.removeprefix("p."): value for name, value in asked if name.startswith("p.") and value}


def _schema(warehouse: Warehouse) -> list[tuple[str, str, list[dict[str, Any]]]]:
    tables = groupby(warehouse.catalog().records(), key=lambda row: (row["table"], row["about"] or ""))
    return [(name, about, list(columns)) for (name, about), columns in tables]


def _cell(value: Any) -> str:
    """Shows fractions with six digits and cuts long texts. Files have the complete values.

    >>> _cell(2 / 3), _cell(1.0), _cell(1234567.8)
    ('0.666667', '1', '1234568')
    """
    if isinstance(value, float):
        return f"{value:.0f}" if _WHOLE <= abs(value) < _LARGE else f"{value:.6g}"
    return shortened(value_text(value), LONGEST_CELL)
