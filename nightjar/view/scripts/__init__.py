"""The scripts of pages: a file per topic, each a block of its own, which may use ``memory.js``."""

from __future__ import annotations

from importlib import resources

HEAD = ("memory.js", "theme.js")
"""The scripts that run before a page is painted."""
PAGE = ("forms.js", "keys.js", "copying.js", "outline.js", "ticked.js", "live.js")
EXPORTED = ("memory.js", "texts.js", "copying.js")


def joined(*names: str) -> str:
    """Returns files as one script, so that a page needs one request."""
    return "".join((resources.files(__package__) / name).read_text("utf-8") for name in names)
