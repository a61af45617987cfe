"""Who may ask, and what a page may do.

On loopback everybody on this machine may look, by a name of this machine alone: so no page from elsewhere reads the
warehouse by giving its own name this machine's address (DNS rebinding). Elsewhere a token is asked for, once: it comes
in the address that is printed, and stays as a cookie. What changes something must come from a page of this server.
"""

from __future__ import annotations

from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from secrets import compare_digest
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "nightjar_view"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADERS = {
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
        name = urlsplit(f"//{headers.get('host', '')}").hostname
        if self.hosts and name not in self.hosts:
            return PlainTextResponse(f"This server is not called {name!r}: use {' or '.join(self.hosts)}.", 421)
        if scope["method"] not in {"GET", "HEAD"} and not _is_own(headers):
            return PlainTextResponse("Only a page of this server may change something here.", 403)
        return None if self.token is None else self._without_token(scope, headers, self.token)

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        if compare_digest(_cookie(headers).encode(), token.encode()):
            return None
        [given, *_] = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        if not compare_digest(given.encode(), token.encode()):
            return PlainTextResponse("Open the address that 'nightjar view' printed: it ends with a token.", 401)
        response = RedirectResponse(scope["path"] or "/", 303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return response


class Guard:
    """Refuses what may not be seen, and says with every page what that may do."""

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
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        await (self._access.refusal(scope) or self._app)(scope, receive, send_guarded)


def _is_own(headers: Headers) -> bool:
    """Says whether a request comes from a page of this server, or from no page at all."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in {"same-origin", "none"}:
        return False
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
