"""Finds the page of a run in the web view."""

from __future__ import annotations

import os
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote, urlsplit

from nightjar.core.home import VIEW_URL
from nightjar.hosting.state import read_state

_DEFAULT = "http://127.0.0.1:4280/"
_LONGEST_SECONDS = 2.0


def page_of_run(run_id: str) -> str | None:
    """Returns the address of a run's page in the view that ``NIGHTJAR_VIEW_URL`` names.

    Without this variable, returns the page in a view of this machine (``nightjar up``, or ``nightjar view`` at its
    default port) if that view shows the run, else None.
    """
    path = f"/runs/{quote(run_id, safe='')}"
    if view := os.environ.get(VIEW_URL):
        return view.rstrip("/") + path
    state = read_state()
    views = dict.fromkeys([state.view_url if state and state.view_url else _DEFAULT, _DEFAULT])
    return next((view.rstrip("/") + path for view in views if _shows(view, path)), None)


def _shows(view: str, path: str) -> bool:
    address = urlsplit(view)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=_LONGEST_SECONDS)
    try:
        connection.request("HEAD", path)
        response = connection.getresponse()
        return response.status == HTTPStatus.OK and response.getheader("server") == "nightjar"
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
