"""Shows the output of terminal programs: colours, and lines that were overwritten.

Rich reads the codes of colours. Other escape sequences are removed, and all text is escaped: output is never HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from markupsafe import Markup, escape
from rich.ansi import AnsiDecoder
from rich.color import Color, ColorSystem, ColorType
from rich.style import Style

from nightjar.reports.formats import visible
from nightjar.view.folding import fold_position

LONGEST_SCREEN = 200_000
_LONGEST_OUTPUT = 1_000_000
"""The characters of an output that are read: a progress bar writes much more than it leaves on the screen."""
_MOST_COLOURED = 20_000
"""The most pieces with a colour on a screen. Further text has no colours."""
_NOTHING = Markup()
_ATTRIBUTES = ("bold", "dim", "italic", "underline", "strike")

# Every repetition ends at a character that cannot begin it, so the time is linear.
_CODE = re.compile(
    r"(?P<style>\x1b\[[0-9;]{0,100}m)"
    r"|(?P<start>\r|\x1b\[[01]?G)"
    r"|(?P<back>\x08)"
    r"|(?P<erase>\x1b\[0?K)"
    r"|(?P<clear>\x1b\[2K)"
    r"|\x1b(?:[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?|\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-~]?)"
)
_MOVES = re.compile(r"[\r\x08]|\x1b\[[012]?[KG]")


class Piece(NamedTuple):
    """Text of one look; ``look`` has the classes of ``terminal.css``."""

    text: str
    look: str


@dataclass(frozen=True)
class Screen:
    """Output as HTML: the part ``shown`` at once, and the ``folded`` part before (``is_end``) or after it."""

    shown: Markup
    folded: Markup = _NOTHING
    folded_length: int = 0
    left_out: int = 0
    is_end: bool = False

    @property
    def is_coloured(self) -> bool:
        return "<span" in self.shown or "<span" in self.folded


def screen(output: str, *, shows_end: bool = False, longest: int = LONGEST_SCREEN) -> Screen:
    """Returns the first characters of an output as HTML, or the last ones."""
    read = output[-_LONGEST_OUTPUT:] if shows_end else output[:_LONGEST_OUTPUT]
    left_out, found = len(output) - len(read), pieces(read)
    length = sum(len(piece.text) for piece in found)
    if length > longest:
        first, last = _split(found, length - longest if shows_end else longest)
        found, left_out, length = last if shows_end else first, left_out + length - longest, longest
    cut = fold_position("".join(piece.text for piece in found), shows_end=shows_end)
    if cut is None:
        return Screen(markup(found), left_out=left_out, is_end=shows_end)
    first, last = _split(found, cut)
    shown, folded = (last, first) if shows_end else (first, last)
    return Screen(markup(shown), markup(folded), length - cut if not shows_end else cut, left_out, shows_end)


def pieces(output: str) -> list[Piece]:
    """Returns what a terminal shows after an output, without the newlines at its end."""
    terminal, found = _Terminal(), list[Piece]()
    for line in output.replace("\r\n", "\n").rstrip("\n").split("\n"):
        found += terminal.line(line)
        found.append(Piece("\n", found[-1].look if found else ""))
    return list(_joined(found[:-1]))


def markup(found: Iterable[Piece]) -> Markup:
    """Returns pieces as HTML. Control characters become signs."""
    return Markup("").join(_element(piece) for piece in found)


def _element(piece: Piece) -> Markup:
    text = escape(visible(piece.text))
    return Markup('<span class="{}">{}</span>').format(piece.look, text) if piece.look else text


class _Terminal:
    def __init__(self) -> None:
        self._style, self._look = Style.null(), ""

    def line(self, text: str) -> list[Piece]:
        if _MOVES.search(text):
            return self._overwritten(text)
        return [Piece(part, self._look) for kind, part in self._parts(text) if kind == "text"]

    def _overwritten(self, text: str) -> list[Piece]:
        cells: list[tuple[str, str]] = []
        at = 0
        for kind, part in self._parts(text):
            if kind == "text":
                cells[at : at + len(part)] = [(character, self._look) for character in part]
                at += len(part)
            elif kind == "erase":
                del cells[at:]
            elif kind == "back":
                at = max(0, at - 1)
            else:
                cells, at = [] if kind == "clear" else cells, 0
        return [Piece("".join(character for character, _ in run), look) for look, run in groupby(cells, itemgetter(1))]

    def _parts(self, text: str) -> Iterator[tuple[str, str]]:
        at = 0
        for code in _CODE.finditer(text):
            if code.start() > at:
                yield "text", text[at : code.start()]
            at = code.end()
            if code.lastgroup == "style":
                self._style, self._look = _styled(self._style, code[0])
            elif code.lastgroup:
                yield code.lastgroup, code[0]
        if at < len(text):
            yield "text", text[at:]


@lru_cache(maxsize=4096)
def _styled(style: Style, code: str) -> tuple[Style, str]:
    """Returns the style after a code, and its look."""
    decoder = AnsiDecoder()
    decoder.style = style
    decoder.decode_line(code)
    return decoder.style, _look(decoder.style)


def _look(style: Style) -> str:
    ink, ground = _number(style.color), _number(style.bgcolor)
    if style.reverse:
        ink, ground = ground or "paper", ink or "ink"
    names = [f"f{ink}" if ink else "", f"g{ground}" if ground else ""]
    return " ".join(filter(None, (*names, *(name for name in _ATTRIBUTES if getattr(style, name)))))


def _number(color: Color | None) -> str:
    """Returns the number of a colour among the 256 colours of terminals, or "" for the default colour."""
    if color is None or color.is_default:
        return ""
    near = color.downgrade(ColorSystem.EIGHT_BIT) if color.type is ColorType.TRUECOLOR else color
    return str(near.number)


def _joined(found: Iterable[Piece]) -> Iterator[Piece]:
    coloured = 0
    for look, run in groupby(found, key=itemgetter(1)):
        coloured += bool(look)
        yield Piece("".join(piece.text for piece in run), look if coloured <= _MOST_COLOURED else "")


def _split(found: list[Piece], at: int) -> tuple[list[Piece], list[Piece]]:
    """Splits pieces after ``at`` characters."""
    position = 0
    for place, (text, look) in enumerate(found):
        if position + len(text) > at:
            cut = at - position
            before = [*found[:place], Piece(text[:cut], look)] if cut else found[:place]
            return before, [Piece(text[cut:], look), *found[place + 1 :]]
        position += len(text)
    return found, []
