"""The shared parts of all pages: queries of the warehouse, templates, and the format of numbers and times.

Templates escape everything; only the filter ``rendered`` makes HTML of a model's text. Invisible characters are shown
as symbols. Form fields keep invisible characters, because they are sent back (``| e``). Templates of reports are
available too. On these pages, they extend the ``base.html`` of this package.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from math import isfinite
from threading import BoundedSemaphore
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment
from markupsafe import Markup
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from nightjar.analysis.run_statistics import summary_of
from nightjar.core.text import one_line
from nightjar.errors import WarehouseError
from nightjar.reports.formats import duration, percent, visible
from nightjar.reports.formats import interval as interval_text
from nightjar.reports.html import environment
from nightjar.statistics.coverage import has_low_coverage
from nightjar.statistics.intervals import interval_of
from nightjar.view.texts import direction, marked, rendered
from nightjar.view.texts.listings import highlighted
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.process import MOST_AT_ONCE, QUERY_TIMEOUT_SECONDS
from nightjar.warehouse.reading.result import AskedQuery

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
PageNumber = Annotated[int, Field(le=1_000_000), AfterValidator(lambda number: max(1, number))]
_OF_PAGES = ("nightjar.view", "nightjar.reports")
"""The packages whose templates make pages: what the first one has, the second one need not have."""
_HOUR = 3600
_WAIT_SECONDS = 5.0
_PAUSE_SECONDS = 0.03
_OLDEST_FIRST = """
SELECT run_id FROM segments.runs WHERE list_contains($runs, run_id) AND part_of(run_id) IS NULL
ORDER BY started_at NULLS FIRST, run_id
"""
_user_queries = BoundedSemaphore(MOST_AT_ONCE - 1)
"""Queries written by users may take long, so one process is kept for the pages."""


def records(
    warehouse: Warehouse,
    sql: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    timeout_seconds: float = QUERY_TIMEOUT_SECONDS,
) -> list[dict[str, Any]]:
    return warehouse.query(sql, parameters, timeout_seconds=timeout_seconds).records()


def answers(
    warehouse: Warehouse, *queries: AskedQuery, timeout_seconds: float = QUERY_TIMEOUT_SECONDS
) -> list[list[dict[str, Any]]]:
    """Returns the rows of several queries on the same snapshot. This takes half the time of single queries."""
    return [found.records() for found in warehouse.query_all(queries, timeout_seconds=timeout_seconds)]


def redirect_to_runs(warehouse: Warehouse, path: str, run_ids: Sequence[str]) -> RedirectResponse:
    """Leads to a page of several runs, with the oldest run first: the others are compared with it."""
    found = records(warehouse, _OLDEST_FIRST, {"runs": run_ids})
    return RedirectResponse(link(path, run=[run["run_id"] for run in found]), 303)


@contextmanager
def user_query() -> Iterator[None]:
    """Limits the concurrent queries of users. Raises ``WarehouseError`` if too many queries are running."""
    if not _user_queries.acquire(timeout=_WAIT_SECONDS):
        raise WarehouseError("Other statements are still running. Try again in a moment.")
    try:
        yield
    finally:
        _user_queries.release()


def one_of(choices: Iterable[str]) -> AfterValidator:
    """Returns a validator that accepts the choices and an empty text."""

    def check(value: str | None) -> str | None:
        if value and value not in choices:
            named = {"value": repr(value[:100]), "choices": ", ".join(choices)}
            raise PydanticCustomError("choice", "There is no {value}. Choose one of: {choices}", named)
        return value

    return AfterValidator(check)


def compile_templates() -> None:
    """Compiles the templates of all pages, each of which its first page would wait for. Leaves time for requests."""
    templates = _environment(*_OF_PAGES)
    for name in templates.list_templates(["html"]):
        templates.get_template(name)
        time.sleep(_PAUSE_SECONDS)


def page(request: Request, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    text = _environment(*_OF_PAGES).get_template(template).render(request=request, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)  # lone surrogates become "?"


def standalone(template: str, /, **values: Any) -> str:
    """Renders a template without a server.

    A page extends the reports' ``base.html``, with its style.
    """
    return _environment("nightjar.reports", "nightjar.view").get_template(template).render(**values)


@cache
def _environment(*packages: str) -> Environment:
    made = environment(*packages)
    made.filters |= {
        "number": number, "digits": digits, "count": count, "seconds": duration, "moment": moment, "ago": ago,
        "share": percent, "one_line": one_line, "size": size, "breakable": breakable, "interval": interval,
        "low_coverage": has_low_coverage, "few_digits": few_digits, "rendered": rendered, "marked": marked,
        "direction": direction, "code": code,
    }  # fmt: skip
    made.globals |= {"link": link}
    return made


def link(path: str, parameters: Mapping[str, Any] | None = None, /, **changes: Any) -> str:
    """Returns a link with parameters. Leaves out empty parameters."""
    query = {name: value for name, value in {**(parameters or {}), **changes}.items() if value not in (None, "")}
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


def interval(run: Mapping[str, Any]) -> str:
    """Returns the 95 % interval of a run's mean reward as text; empty if nothing is known. See ``summary_of``."""
    return interval_text(interval_of(summary_of(run))[0])


def breakable(name: str | None) -> Markup:
    """Lets a narrow column break a name after a slash. Returns an empty text for None.

    >>> breakable("meta/<llama>")
    Markup('meta/<wbr>&lt;llama&gt;')
    """
    return Markup("/<wbr>").join(visible(name or "").split("/"))


def number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def few_digits(value: int) -> str:
    """Formats a number in a few characters, for the labels of a chart.

    >>> few_digits(960), few_digits(12_345), few_digits(1_000_000)
    ('960', '12.3k', '1M')
    """
    for unit, factor in (("M", 1_000_000), ("k", 1_000)):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return str(value)


def code(text: str, language: str) -> Markup:
    """Returns code as HTML, highlighted if the language is known."""
    return Markup(highlighted(visible(text), language))  # noqa: S704 - every token is escaped


def digits(value: float | None) -> str:
    """Formats a number with the digits that it needs, at most four after the point.

    >>> digits(3.0), digits(0.25), digits(1 / 3), digits(12345.0), digits(0.00002), digits(None)
    ('3', '0.25', '0.3333', '12,345', '2e-05', '–')
    """
    if value is None:
        return "–"
    if not isfinite(value) or 0 < abs(value) < 0.0001:  # noqa: PLR2004 - the last digit that is shown
        return f"{value:.3g}"
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def size(value: int) -> str:
    """Formats a number of bytes.

    >>> size(512), size(2_500), size(3_000_000)
    ('512 bytes', '2.5 kB', '3 MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} bytes"


def moment(value: datetime | None) -> str:
    return "–" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def ago(value: datetime | None) -> str:
    if value is None:
        return "–"
    seconds_ago = max(0, int((datetime.now(UTC) - value).total_seconds()))
    for unit, length in (("day", 24 * _HOUR), ("hour", _HOUR), ("minute", 60)):
        if times := seconds_ago // length:
            return f"{times} {unit}{'s' * (times > 1)} ago"
    return "just now"
