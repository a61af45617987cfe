"""HTML pages: templates filled with records. Each page is one file that needs no other file.

Text from records is escaped. Invisible and direction-changing characters are shown as signs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nightjar.errors import ConfigError
from nightjar.reports.formats import visible


def render(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(values)


def fragment(template: str, macro: str, *values: Any) -> Markup:
    """Returns the HTML of a macro."""
    made: Markup = getattr(_templates().get_template(template).module, macro)(*values)
    return made


def style() -> str:
    return _templates().get_template("style.css").render()


def icon() -> str:
    """Returns the icon of pages, as SVG."""
    return _templates().get_template("icon.svg").render()


def write_page(path: Path, page: str, *, makes_folder: bool = False) -> None:
    """Writes a page to a file. Unpaired surrogates, which a response may contain, become question marks."""
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(page.encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"Cannot write {str(path)!r}: {error.strerror or error}") from error


def _finished(value: Any) -> Any:
    """Returns how a template shows a value. HTML, such as the output of the filter ``e``, stays unchanged."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def environment(*packages: str) -> Environment:
    """Returns an environment with the templates of packages; of templates with the same name, the first one."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finished,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _templates() -> Environment:
    return environment("nightjar.reports")
