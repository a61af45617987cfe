"""Addresses of links: only web pages are linked, and the host of each link is shown."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, urlsplit

_WEB = re.compile(r"https?://[^/\\?#]", re.IGNORECASE)
_HOST = re.compile(r"[\w.:-]+", re.ASCII)
_LONGEST = 2_000


def is_web(url: str) -> bool:
    """Returns whether the address is that of a web page with a host."""
    return bool(_WEB.match(url)) and len(url) <= _LONGEST and bool(host_of(url))


def host_of(url: str) -> str:
    """Returns the host of an address in ASCII, which tells letters that look alike apart, or "" if there is none."""
    try:
        host = unquote(urlsplit(percent_encoded(url)).hostname or "").encode("idna").decode()
    except (ValueError, UnicodeError):
        return ""
    return host if _HOST.fullmatch(host) else ""


def percent_encoded(url: str) -> str:
    """Encodes what has no place in an address: control characters, and backslashes, which browsers read as slashes."""
    return quote(url, safe="!#$%&'()*+,/:;=?@[]~")
