"""``nightjar docs``: the documentation in a browser, without a network.

``make docs`` builds the pages into ``nightjar/site``, and the wheel contains them.
"""

from __future__ import annotations

import difflib
import webbrowser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from nightjar.cli.options import argument, option
from nightjar.cli.terminal import echo
from nightjar.core.ports import LOOPBACK, listen
from nightjar.errors import ConfigError

_PORTS = range(4290, 4310)


def docs(
    page: Annotated[
        str, argument("Page to open, such as guides/nights (default: the first page).", metavar="PAGE")
    ] = "index",
    port: Annotated[int | None, option("Port (default: 4290, or the next free port).", min=0, max=65535)] = None,
    no_browser: Annotated[bool, option("Do not open a browser.", "--no-browser")] = False,
) -> None:
    """Read the documentation in a web browser, until Ctrl-C. Pages and search need no network.

    Example: nightjar docs guides/nights --no-browser
    """
    site = _site()
    name = _page_of(page, site)
    server = ThreadingHTTPServer((LOOPBACK, 0), partial(_Handler, directory=str(site)), bind_and_activate=False)
    server.socket.close()
    server.socket = listen(LOOPBACK, _PORTS if port is None else [port])
    address = f"http://{LOOPBACK}:{server.socket.getsockname()[1]}/{quote(name)}"
    with server:
        echo(f"Documentation at {address}  (Ctrl-C ends it)")
        if not no_browser:
            webbrowser.open(address)
        server.serve_forever()


class _Handler(SimpleHTTPRequestHandler):
    """Sends the files of the site, and logs no requests."""

    def log_message(self, *_: object) -> None:
        pass


def _site() -> Path:
    site = Path(str(resources.files("nightjar"))) / "site"
    if not (site / "index.html").is_file():
        raise ConfigError(
            "This installation has no built documentation. In a checkout of Nightjar, build it: make docs. "
            "The pages are also the Markdown files in its folder docs/."
        )
    return site


def _page_of(page: str, site: Path) -> str:
    """Returns the file of a page. ``docs/guides/nights.md``, as messages write it, names the same page."""
    asked = page.removeprefix("docs/").removesuffix(".md").removesuffix(".html").strip("/")
    for name in (f"{asked}.html", f"{asked}/index.html"):
        path = (site / name).resolve()
        if path.is_relative_to(site.resolve()) and path.is_file():
            return name
    known = sorted(path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html"))
    near = [name for name in known if asked and asked.rpartition("/")[2] in name]
    near = near or difflib.get_close_matches(asked, known) or [name for name in known if name.endswith("/index")]
    raise ConfigError(f"There is no page {page!r}. Choose one of: {', '.join(near[:10])}")
