"""Who may ask, and what a page may do.

On loopback everybody on this machine may look, by a name of this machine alone: so no page from elsewhere reads the
warehouse by giving its own name this machine's address (DNS rebinding). Elsewhere a token is asked for, once: it comes
in the address that is printed, and stays as a cookie. What a page from elsewhere may do is link here: it changes
nothing, and shows or asks for nothing in passing, as a query that takes a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from secrets import compare_digest
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "nightjar_view"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_READING = ("GET", "HEAD")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with "no-referrer" a browser hides where this server's own forms come from
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True)
class Access:
    """By which names the server may be called, and what must be known.

    Attributes:
        hosts: the names; none: any.
        token: what must be known; None for nothing.
    """

    hosts: tuple[str, ...] = LOOPBACK
    token: str | None = None

    def refusal(self, scope: Scope) -> Response | None:
        """Returns what is answered in the place of the page; None where it may be seen."""
        headers = Headers(scope=scope)
        name = _name(headers)
        if self.hosts and name not in self.hosts:
            return PlainTextResponse(f"This server is not called {name!r}: use {' or '.join(self.hosts)}.", 421)
        if not _is_own(headers) and not (scope["method"] in _READING and _is_link(headers)):
            return PlainTextResponse("Only a page of this server may ask for this.", 403)
        return None if self.token is None else self._without_token(scope, headers, self.token)

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        if compare_digest(_cookie(headers).encode(), token.encode()):
            return None
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        [given, *_] = asked.pop("token", [""])
        if not compare_digest(given.encode(), token.encode()):
            return PlainTextResponse("Open the address that 'nightjar view' printed: it ends with a token.", 401)
        path = "/" + scope["path"].lstrip("/")  # what begins with two slashes is another server's
        response = RedirectResponse(f"{path}?{urlencode(asked, doseq=True)}".rstrip("?"), 303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="lax")  # "strict" would refuse links from a chat
        return response


class Guard:
    """Refuses what may not be seen, and says with every page what that may do.

    What answers is told as ``request.state.is_own_machine`` whether only people on this machine ask.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answering = self._access.refusal(scope) or self._app
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # the server leaves out the body
        state = {**scope.get("state", {}), "is_own_machine": self._access.token is None}
        await answering({**scope, "method": method, "state": state}, receive, send_guarded)


def _is_own(headers: Headers) -> bool:
    """Says whether a request comes from a page of this server, or from no page at all."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in {"same-origin", "none"}:
        return False
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _is_link(headers: Headers) -> bool:
    """Says whether somebody has followed a link of another page: it is left for the page that is asked for."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _name(headers: Headers) -> str | None:
    """Returns by which name the server was called; None where that is no name."""
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
