"""Pages: templates filled with records. All that is in a page is in its file; what comes from records is escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nightjar.errors import ConfigError


def render(template: str, **values: Any) -> str:
    """Returns a page.

    Args:
        template: the name of a file in ``reports/templates``.
        values: what it is filled with.
    """
    return _templates().get_template(template).render(values)


def style() -> str:
    """Returns the style of all pages."""
    return _templates().get_template("style.css").render()


def write_page(path: Path, page: str) -> None:
    """Writes a page into a file; halves of surrogate pairs, which a model may answer, become question marks.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        path.write_bytes(page.encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"Cannot write {str(path)!r}: {error.strerror or error}") from error


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("nightjar.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
