"""The application: its pages, and what is answered where one cannot be made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from nightjar.config import RunConfig
from nightjar.errors import ConfigError, MissingWarehouseError, NightjarError
from nightjar.reports.html import style
from nightjar.serving import compare, history, live, nights, notes, rollouts, run, runs, samples, searching, sql
from nightjar.serving.access import HEADERS, Access, Guard
from nightjar.serving.templating import page
from nightjar.warehouse import Warehouse

ROUTERS = (
    runs.router,
    live.router,
    run.router,
    samples.router,
    rollouts.router,
    searching.router,
    compare.router,
    nights.router,
    history.router,
    sql.router,
    notes.router,
)
_STATIC = resources.files(__package__) / "static"


def create_app(
    warehouse: Warehouse, access: Access, command_of: Callable[[RunConfig], Sequence[str]] | None = None
) -> FastAPI:
    """Returns the application that shows a warehouse.

    Args:
        warehouse: what it shows; need not be there yet.
        access: who may ask.
        command_of: returns the words that start a run; None for the command that says them.
    """
    app = FastAPI(openapi_url=None)
    app.state.warehouse, app.state.command_of = warehouse, command_of
    app.state.live, app.state.is_ending = live.LiveRuns(), lambda: False
    app.add_middleware(Guard, access=access)
    app.mount("/static", StaticFiles(directory=str(_STATIC)), name="static")
    app.add_api_route("/style.css", lambda: Response(style(), media_type="text/css"))
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(NightjarError, _refused)
    app.add_exception_handler(HTTPException, _missing)
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(Exception, _failed)
    return app


def _refused(request: Request, error: Exception) -> Response:
    """Says what is wrong in words: what is not there is 404, what was asked wrongly 400."""
    if isinstance(error, MissingWarehouseError):
        status = 200 if request.url.path == "/" else 404
        return page(request, "empty.html", status, location=request.app.state.warehouse.location)
    status = 404 if isinstance(error, LookupError) else 400 if isinstance(error, ConfigError) else 500
    return page(request, "error.html", status, message=str(error))


def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for that"
    return page(request, "error.html", error.status_code, message=error.detail)


def _misread(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError), "it is registered for that"
    told = [f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()]
    return page(request, "error.html", 400, message="\n".join(told))


def _failed(request: Request, error: Exception) -> Response:
    """Says that there is a mistake in Nightjar; the server logs it."""
    told = f"This page failed ({type(error).__name__}): a mistake in Nightjar. The terminal of the server says more."
    response = page(request, "error.html", 500, message=told)
    response.headers.update(HEADERS)  # nothing else adds them here
    return response
