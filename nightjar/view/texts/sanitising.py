"""What HTML of a text may contain: no scripts, styles, forms or images, and links to web pages alone."""

from __future__ import annotations

import nh3

from nightjar.view.texts import formulas, listings

_TEXT = {
    "a", "b", "blockquote", "br", "code", "details", "div", "em", "figcaption", "figure", "hr", "i", "li", "mark", "ol",
    "p", "pre", "s", "small", "span", "strong", "summary", "table", "tbody", "td", "th", "thead", "tr", "u", "ul",
}  # fmt: skip
_MATHEMATICS = {
    "math", "menclose", "merror", "mfrac", "mi", "mmultiscripts", "mn", "mo", "mover", "mpadded", "mphantom",
    "mprescripts", "mroot", "mrow", "ms", "mspace", "msqrt", "mstyle", "msub", "msubsup", "msup", "mtable", "mtd",
    "mtext", "mtr", "munder", "munderover",
}  # fmt: skip
_SIZES = {
    "accent", "accentunder", "depth", "display", "displaystyle", "fence", "form", "height", "largeop", "linethickness",
    "lspace", "mathvariant", "maxsize", "minsize", "movablelimits", "notation", "rspace", "scriptlevel", "separator",
    "stretchy", "symmetric", "voffset", "width",
}  # fmt: skip
_CLASSES = {
    "div": {"scroll"}, "mtd": set(formulas.CLASSES), "mark": {"answer"}, "p": {f"h{level}" for level in range(1, 7)},
    "code": {"formula"}, "pre": {"formula"}, "figure": {"listing"}, "small": {"host"}, "details": {"rest"},
    "span": {"boxed", *listings.CLASSES}, "td": {"right", "center"}, "th": {"right", "center"},
}  # fmt: skip
_VALUES = {
    "div": {"tabindex": {"0"}, "role": {"region"}, "aria-label": {"table"}},
    "p": {},
    "th": {"scope": {"col"}},
}
_CLEANER = nh3.Cleaner(
    tags=_TEXT | _MATHEMATICS,
    attributes={"a": {"href"}, "ol": {"start"}, **dict.fromkeys(_MATHEMATICS, _SIZES)},
    tag_attribute_values=_VALUES,
    allowed_classes=_CLASSES,
    url_schemes={"http", "https"},
    url_relative="deny",
    link_rel="noreferrer nofollow",
)


def sanitised(html: str) -> str:
    return _CLEANER.clean(html)
