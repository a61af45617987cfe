"""Finds pages of runs in the web view."""

from __future__ import annotations

import json
import os
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote, urlencode, urlsplit

from nightjar.core.home import VIEW_PORT, VIEW_URL, WAREHOUSE_OF_VIEW
from nightjar.hosting.state import read_state
from nightjar.warehouse import Warehouse

_DEFAULT = f"http://127.0.0.1:{VIEW_PORT}/"
_LONGEST_SECONDS = 2.0
_LONGEST_BYTES = 10_000


def page_of_run(run_id: str, warehouse: Warehouse) -> str | None:
    """Returns the address of a run's page. None if no known view shows the warehouse; see ``_view_of``."""
    view = _view_of(warehouse)
    return view and f"{view}/runs/{quote(run_id, safe='')}"


def page_of_comparison(baseline: str, candidate: str, warehouse: Warehouse) -> str | None:
    view = _view_of(warehouse)
    return view and f"{view}/compare?{urlencode([('run', baseline), ('run', candidate)])}"


def _view_of(warehouse: Warehouse) -> str | None:
    """Returns the address of the view that ``NIGHTJAR_VIEW_URL`` names.

    Without this variable, returns the view of this machine that shows the warehouse: that of ``nightjar up``, or of
    ``nightjar view`` at its default port.
    """
    if view := os.environ.get(VIEW_URL):
        return view.rstrip("/")
    state = read_state()
    views = dict.fromkeys([state.view_url if state and state.view_url else _DEFAULT, _DEFAULT])
    return next((view.rstrip("/") for view in views if _shown_by(view) == warehouse.address), None)


def _shown_by(view: str) -> str | None:
    """Returns the address of the warehouse that a view shows; None if no view answers."""
    place = urlsplit(view)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=_LONGEST_SECONDS)
    try:
        connection.request("GET", WAREHOUSE_OF_VIEW)
        return str(json.loads(connection.getresponse().read(_LONGEST_BYTES))["warehouse"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return None
    finally:
        connection.close()
