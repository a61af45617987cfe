"""The server of the web view: its address, access, pages and error pages.

On loopback, every user of this machine has access, but only under a name of this machine. So no foreign page can read
the warehouse by pointing its own host name at this machine (DNS rebinding). On any other address a token is required.
The token is part of the printed address and is kept in a cookie. A page of another site may only link to this server.
It can neither change anything nor make the server run a query.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from types import FrameType
from urllib.parse import parse_qs, urlencode, urlsplit

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nightjar.core.home import VIEW_PORT, WAREHOUSE_OF_VIEW
from nightjar.core.ports import listen
from nightjar.errors import ConfigError, MissingWarehouseError, NightjarError
from nightjar.evaluation.config import RunConfig
from nightjar.reports.html import icon, style
from nightjar.view import (
    all_rollouts,
    compare,
    history,
    live,
    live_rollout,
    nights,
    notes,
    pairs,
    rollouts,
    run,
    runs,
    samples,
    scripts,
    search,
    sql,
)
from nightjar.view.pages import compile_templates, page, standalone
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading import process

COOKIE = "nightjar_view"
TOKEN_VARIABLE = "NIGHTJAR_VIEW_TOKEN"  # noqa: S105 - a name
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with "no-referrer" browsers hide that a form is this server's own
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PAGES = (
    runs,
    live,
    live_rollout,
    run,
    samples,
    all_rollouts,
    pairs,
    rollouts,
    search,
    compare,
    nights,
    history,
    sql,
    notes,
)
_PORTS_TRIED = 20
_SHORTEST_TOKEN = 16
_SHUTDOWN_SECONDS = 5
_LONGEST_WARM_UP_SECONDS = 3.0
_log = logging.getLogger(__name__)


def serve(
    warehouse: Warehouse,
    host: str,
    port: int | None,
    announce: Callable[[str], None],
    command_of: Callable[[RunConfig], Sequence[str]],
) -> None:
    """Serves the web view until Ctrl-C. Any address except loopback requires a token.

    The token is the value of ``NIGHTJAR_VIEW_TOKEN``, or a new one. If ``port`` is None, 4280 or the next free port is
    used. ``announce`` receives the address of the first page once the server listens. ``command_of`` returns the
    command line that starts a run.
    """
    is_own = host == "localhost" or _is_loopback(host)
    chosen = None if is_own else _chosen_token()
    access = (
        Access(tuple(dict.fromkeys((*_LOOPBACK, host)))) if is_own else Access((), chosen or secrets.token_urlsafe(24))
    )
    listening = listen(host, range(VIEW_PORT, VIEW_PORT + _PORTS_TRIED) if port is None else [port])
    is_any = host in {"0.0.0.0", "::"}  # noqa: S104 - nothing is bound here
    name = socket.gethostname() if is_any else f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}/"
    app = create_app(warehouse, access, command_of)
    warm_up(app)
    announce(address if access.token in {None, chosen} else f"{address}?token={access.token}")
    server = _Server(
        uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=_SHUTDOWN_SECONDS)
    )
    app.state.is_ending = lambda: server.should_exit
    server.run(sockets=[listening])


def _chosen_token() -> str | None:
    """Returns the token of a view that keeps its address over restarts. It is a secret, so it is never printed."""
    token = os.environ.get(TOKEN_VARIABLE)
    if token and len(token) < _SHORTEST_TOKEN:
        raise ConfigError(f"{TOKEN_VARIABLE} must have at least {_SHORTEST_TOKEN} characters: openssl rand -hex 24")
    return token or None


class _Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        process.stop()


def warm_up(app: FastAPI, longest_seconds: float = _LONGEST_WARM_UP_SECONDS) -> None:
    """Makes the first page, so that its visitor waits neither for the templates nor for the state of the warehouse.

    Then goes on with the other templates in the background. Waits ``longest_seconds`` at most.
    """
    is_made = threading.Event()
    asked = Request({"type": "http", "app": app, "method": "GET", "path": "/", "query_string": b"", "headers": []})

    def make() -> None:
        with suppress(NightjarError):  # the first visitor sees the error
            runs.show_runs(asked, runs.Asked())
        is_made.set()
        compile_templates()

    threading.Thread(target=make, daemon=True).start()
    is_made.wait(longest_seconds)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Access:
    hosts: tuple[str, ...] = _LOOPBACK
    """Names under which the server may be addressed. If empty, any name is allowed."""
    token: str | None = None

    def refusal(self, scope: Scope) -> Response | None:
        """Returns the response that refuses a request, or None if the request is permitted."""
        headers = Headers(scope=scope)
        name = _host_name(headers)
        if self.hosts and name not in self.hosts:
            return PlainTextResponse(f"This server is not called {name!r}: use {' or '.join(self.hosts)}.", 421)
        if not _is_own_page(headers) and not (scope["method"] in {"GET", "HEAD"} and _is_link(headers)):
            return PlainTextResponse("This request is only accepted from a page of this server.", 403)
        return None if self.token is None else self._check_token(scope, headers, self.token)

    def _check_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        if _is_equal(_cookie(headers), token):
            return None
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        [given, *_] = asked.pop("token", [""])
        if not _is_equal(given, token):
            return PlainTextResponse(
                "Open the address that 'nightjar view' printed, which ends with ?token=TOKEN.", 401
            )
        path = "/" + scope["path"].lstrip("/")  # a path with two leading slashes would lead to another server
        response = RedirectResponse(f"{path}?{urlencode(asked, doseq=True)}".rstrip("?"), 303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="lax")  # "strict" would break links from a chat
        return response


class Guard:
    """Refuses requests that have no access, and adds the security headers to every response.

    Sets ``request.state.is_own_machine``: whether only users of this machine have access.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answering = self._access.refusal(scope) or self._app
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # the server leaves out the body
        state = {**scope.get("state", {}), "is_own_machine": self._access.token is None}
        await answering({**scope, "method": method, "state": state}, receive, send_guarded)


def _is_equal(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode(), expected.encode())


def _is_own_page(headers: Headers) -> bool:
    """Returns whether a request comes from a page of this server, or from no page."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in {"same-origin", "none"}:
        return False
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _is_link(headers: Headers) -> bool:
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _host_name(headers: Headers) -> str | None:
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        return None


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def create_app(
    warehouse: Warehouse, access: Access, command_of: Callable[[RunConfig], Sequence[str]] | None = None
) -> FastAPI:
    """Returns the application.

    ``command_of`` returns the command that starts a run. Without ``command_of``, pages show the run's settings.
    """
    app = FastAPI(openapi_url=None)
    app.state.warehouse, app.state.command_of = warehouse, command_of
    app.state.live, app.state.is_ending = live.LiveRuns(), lambda: False
    app.add_middleware(Guard, access=access)
    app.add_api_route("/icon.svg", _static(icon, "image/svg+xml"))
    app.add_api_route("/style.css", _static(style, "text/css"))
    for name in ("terminal.css", "texts.css", "conversation.css", "tables.css"):
        app.add_api_route(f"/{name}", _static(partial(standalone, name), "text/css"))
    for name, files in (
        ("head", scripts.HEAD),
        ("page", scripts.PAGE),
        ("texts", ["texts.js"]),
        ("tables", ["tables.js"]),
    ):
        app.add_api_route(f"/{name}.js", _static(partial(scripts.joined, *files), "text/javascript"))
    # for links of notebooks
    app.add_api_route(WAREHOUSE_OF_VIEW, lambda: JSONResponse({"warehouse": warehouse.address}))
    for module in _PAGES:
        app.include_router(module.router)
    for kind in (NightjarError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _show_error)
    app.add_exception_handler(Exception, _show_bug)
    return app


def _static(text: Callable[[], str], kind: str) -> Callable[[], Response]:
    made = cache(text)
    return lambda: Response(made(), media_type=kind)


def _show_error(request: Request, error: Exception) -> Response:
    if isinstance(error, MissingWarehouseError):
        status = 200 if request.url.path == "/" else 404
        return page(request, "empty.html", status, location=request.app.state.warehouse.location)
    if isinstance(error, HTTPException):
        return page(request, "error.html", error.status_code, message=error.detail)
    if isinstance(error, RequestValidationError):
        problems = [f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors()]
        return page(request, "error.html", 400, message="\n".join(problems))
    status = 404 if isinstance(error, LookupError) else 400 if isinstance(error, ConfigError) else 500
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return page(request, "error.html", status, message=str(error))


def _show_bug(request: Request, error: Exception) -> Response:
    message = f"This page failed ({type(error).__name__}) because of a bug in Nightjar. See the server's terminal."
    response = page(request, "error.html", 500, message=message)
    response.headers.update(HEADERS)  # this handler runs outside the guard
    return response
