"""From a record to a page: the templates, and how numbers and moments read on them.

Everything is escaped: what a model has said is text, never HTML; what would not be seen of it is shown as signs, but
where a form sends it back (``| e``). The templates of reports are there, too: here they
extend this package's ``base.html``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from nightjar.comparison.measuring import mean_interval
from nightjar.reports.html import finished, visible
from nightjar.stats.estimates import Estimate

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A number in an address, as large as the database has them."""
PageNumber = Annotated[int, Field(le=1_000_000)]


def one_of(choices: Iterable[str]) -> AfterValidator:
    """Refuses, in an address, what is none of some choices; an empty text is none, and fine.

    Args:
        choices: can be gone through again and again.
    """

    def chosen(value: str | None) -> str | None:
        if value and value not in choices:
            named = {"value": repr(value[:100]), "choices": ", ".join(choices)}
            raise PydanticCustomError("choice", "There is no {value}. Choose one of: {choices}", named)
        return value

    return AfterValidator(chosen)


_ALPHA = 0.05
_MINUTE, _HOUR = 60, 3600


def page(request: Request, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    """Returns a template as a page."""
    text = _environment("nightjar.serving", "nightjar.reports").get_template(template).render(request=request, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)  # halves of surrogate pairs: "?"


def standalone(template: str, /, **values: Any) -> str:
    """Returns a template as a page that needs no server: there ``base.html`` is that of reports, with the style."""
    return _environment("nightjar.reports", "nightjar.serving").get_template(template).render(**values)


@cache
def _environment(*packages: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        finalize=finished,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number, "count": count, "seconds": seconds, "moment": moment, "ago": ago, "share": share,
        "one_line": one_line, "size": size, "breakable": breakable, "half_width": half_width,
    }  # fmt: skip
    environment.globals |= {"link": link}
    return environment


def link(path: str, parameters: Mapping[str, Any] | None = None, /, **changes: Any) -> str:
    """Returns an address with parameters, those that are changed in their new form; empty ones are left out."""
    asked = {name: value for name, value in {**(parameters or {}), **changes}.items() if value not in (None, "")}
    return f"{path}?{urlencode(asked, doseq=True)}" if asked else path


def one_line(text: str, longest: int = 160) -> str:
    r"""Returns the beginning of a text as one line.

    Example:
        >>> one_line("What\n is 2 + 2?", 6)
        'What i…'
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]}…"


def half_width(stderr: float, examples: int | None) -> float:
    """Returns half the width of the 95 % interval of a mean, as a sign of how well it is known; Student's t.

    Where all examples came to the same, it is what an unseen one could change.

    Args:
        stderr: of the mean, by example.
        examples: how many.

    Example:
        >>> round(half_width(0.1, 11), 4), half_width(0.0, 100) > 0.02
        (0.2228, True)
    """
    return mean_interval(Estimate(0.0, stderr), max(2, examples or 2), _ALPHA, span=1.0).high


def breakable(name: str | None) -> Markup:
    """Returns a name that a narrow column may break after a slash; nothing where there is none.

    Example:
        >>> breakable("meta/<llama>")
        Markup('meta/<wbr>&lt;llama&gt;')
    """
    return Markup("/<wbr>").join(visible(name or "").split("/"))  # noqa: S704: no text of others is in it


def number(value: float | None, digits: int = 4) -> str:
    """Returns a number; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def count(value: int | None) -> str:
    """Returns a count; a dash where there is none."""
    return "–" if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """Returns a share in percent; a dash where there is none.

    Example:
        >>> share(1.0), share(0.9991), share(None)
        ('100 %', '99.9 %', '–')
    """
    if value is None:
        return "–"
    percent = int(value * 1000) / 10
    return f"{percent:g} %"


def seconds(value: float | None) -> str:
    """Returns a duration that is given in seconds; a dash where there is none.

    Example:
        >>> seconds(0.0024), seconds(2.5), seconds(75), seconds(7300)
        ('2.4 ms', '2.5 s', '1 min 15 s', '2 h 1 min')
    """
    if value is None:
        return "–"
    if value < _MINUTE:
        return f"{value:.3g} s" if value >= 1 or not value else f"{1000 * value:.3g} ms"
    if value < _HOUR:
        return f"{int(value) // _MINUTE} min {int(value) % _MINUTE} s"
    return f"{int(value) // _HOUR:,} h {int(value) % _HOUR // _MINUTE} min"


def size(value: int) -> str:
    """Returns how large something is that has so many bytes.

    Example:
        >>> size(512), size(2_500), size(3_000_000)
        ('512 bytes', '2.5 kB', '3 MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} bytes"


def moment(value: datetime | None) -> str:
    """Returns a moment, in UTC; a dash where there is none."""
    return "–" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def ago(value: datetime | None) -> str:
    """Returns how long ago a moment was."""
    if value is None:
        return "–"
    since = datetime.now(UTC) - value
    if since < timedelta(minutes=1):
        return "just now"
    for unit, length in (("day", timedelta(days=1)), ("hour", timedelta(hours=1)), ("minute", timedelta(minutes=1))):
        if since >= length:
            times = since // length
            return f"{times} {unit}{'s' * (times > 1)} ago"
    raise AssertionError("a minute has gone by")
