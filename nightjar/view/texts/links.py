"""Addresses of links: only web pages are linked, and the host of each link is shown."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, urlsplit

_WEB = re.compile(r"https?://[^/\\?#]", re.IGNORECASE)
_HOST = re.compile(r"[\w.:-]+", re.ASCII)
_LONGEST = 2_000
_BARE = re.compile(
    r"https?://\w[\w.-]*(?<=\w)(?::\d{1,5})?(?:[/?#](?:[\w/?#=&%+~$@!*,.:;()-]*[\w/#=&%+~$-])?)?",
    re.ASCII | re.IGNORECASE,
)
"""An address in a text, without the punctuation after it and without a user's name, which could look like a host."""


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


def split_addresses(text: str) -> list[str]:
    """Splits a text at the addresses of web pages: the elements 1, 3, … are the addresses.

    >>> split_addresses("see https://e.org/a_(b), or not")
    ['see ', 'https://e.org/a_(b)', ', or not']
    """
    parts, end = [], 0
    for found in _BARE.finditer(text):
        start, stop = found.span()
        is_open = found[0].count("(") > found[0].count(")")
        stop += is_open and text.startswith(")", stop)
        if is_web(text[start:stop]):
            parts += [text[end:start], text[start:stop]]
            end = stop
    return [*parts, text[end:]]


def percent_encoded(url: str) -> str:
    """Encodes what has no place in an address: control characters, and backslashes, which browsers read as slashes."""
    return quote(url, safe="!#$%&'()*+,/:;=?@[]~")
