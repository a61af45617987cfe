"""The nights of suites with their verdicts.

``/nights`` shows all, ``/nights?suite=nightly&night=2026-11-20`` one night.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from nightjar.analysis.judging import beside, find_night
from nightjar.evaluation.nights import judged_now
from nightjar.reports.nights import change_of, how_to_complete, reward_of, why
from nightjar.view.pages import PageNumber, page
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import Night

router = APIRouter()

ROWS = 30
_UNSETTLED = ("running", "incomplete")


class Asked(BaseModel):
    suite: str = ""
    night: str = ""
    page: PageNumber = 1


@router.get("/nights")
def show_nights(request: Request, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    warehouse: Warehouse = request.app.state.warehouse
    written = warehouse.nights()
    if asked.night:
        return _one_night(request, warehouse, find_night(written, asked.suite, asked.night))
    found = [one for one in written if asked.suite in {"", one.suite}]
    found.sort(key=lambda one: (one.night, one.suite), reverse=True)
    shown = found[ROWS * (asked.page - 1) : ROWS * asked.page]
    return page(
        request,
        "nights.html",
        nights=[_as_of_now(warehouse, one) for one in shown],
        suites=sorted({one.suite for one in written}),
        asked=asked,
        count=len(found),
        rows=ROWS,
        summary=_summary,
    )


def _one_night(request: Request, warehouse: Warehouse, night: Night | None) -> HTMLResponse:
    if night is None:
        raise HTTPException(404, "The warehouse has no such night.")
    tools = {"summary": _summary, "beside": beside, "change_of": change_of, "reward_of": reward_of, "why": why}
    shown = _as_of_now(warehouse, night)
    return page(request, "night.html", night=shown, how_to_complete=how_to_complete, **tools)


def _as_of_now(warehouse: Warehouse, night: Night) -> Night:
    return judged_now(warehouse, night, writes=False) if night.verdict in _UNSETTLED else night


def _summary(night: Night) -> str:
    return night.line.removeprefix(f"{night.suite} {night.night} {night.verdict}: ")
