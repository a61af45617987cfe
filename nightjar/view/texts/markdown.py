"""Turns Markdown into HTML, block by block. HTML in a text is shown as it was written, and images become links.

The HTML is not trusted yet: ``sanitising`` follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyromark
from markupsafe import escape

from nightjar.view.folding import UNFOLDED
from nightjar.view.texts import formulas
from nightjar.view.texts.answers import Answer
from nightjar.view.texts.formulas import Formula
from nightjar.view.texts.links import host_of, is_web, percent_encoded, split_addresses
from nightjar.view.texts.listings import listing
from nightjar.view.texts.python_code import fenced

_OPTIONS = pyromark.Options.ENABLE_TABLES | pyromark.Options.ENABLE_STRIKETHROUGH | pyromark.Options.ENABLE_TASKLISTS
_DEEPEST = 30
"""The deepest nesting of elements. Deeper lists and quotes have no element of their own."""
_MANY_QUOTES = re.compile(r"^(?:[ \t]{0,20}>){50}", re.MULTILINE)
"""Quotes that take the parser quadratic time."""
_LINE = 80
_SHOWN_OF_LIST = UNFOLDED * 3 // 4
_NEW_LINES = re.compile(r"\n|<(?:br|li|tr|p)[ >]")
_TAGS = {
    "Paragraph": "p", "Item": "li", "Emphasis": "em", "Strong": "strong", "Strikethrough": "s",
}  # fmt: skip
_TABLE = '<div class="scroll" role="group" aria-label="table" tabindex="0"><table>'


@dataclass
class Piece:
    """A piece of HTML. ``text`` is the text in which the answer may be marked."""

    html: str
    text: str = ""
    kind: str = ""
    """text, code, formula, link, or "" for tags."""

    def mark(self, start: int, end: int) -> None:
        if self.kind in {"formula", "link"}:
            self.html = f'<mark class="answer">{self.html}</mark>'
            return
        before, answer, after = (escape(part) for part in (self.text[:start], self.text[start:end], self.text[end:]))
        marked = f'{before}<mark class="answer">{answer}</mark>{after}'
        self.html = f"<code>{marked}</code>" if self.kind == "code" else marked


@dataclass
class Block:
    """A paragraph, list, table or other part of a text. ``length`` is the number of its characters."""

    pieces: list[Piece] = field(default_factory=list)
    length: int = 0

    @property
    def html(self) -> str:
        return "".join(piece.html for piece in self.pieces)

    @property
    def size(self) -> int:
        """The number of characters, of which every line has at least 80: many short lines are long, too."""
        return max(self.length, _LINE * len(_NEW_LINES.findall(self.html)))


@dataclass(frozen=True)
class _Link:
    """The beginning of a link or image: its URL, the sign before it, and the number of pieces before its label."""

    url: str
    sign: str
    place: int


def blocks(source: str, answer: Answer) -> list[Block] | None:
    """Returns the blocks of a text, with the last occurrence of the answer marked. Returns None for a hostile text."""
    if _MANY_QUOTES.search(source):
        return None
    text, found = formulas.take_out(fenced(source))
    writer = _Writer(found)
    for event in pyromark.events(text, options=_OPTIONS):
        writer.write(event)
    _mark(writer.blocks, answer)
    return writer.blocks


def _mark(found: Sequence[Block], answer: Answer) -> None:
    for block in reversed(found):
        for piece in reversed(block.pieces):
            if piece.text and (span := answer.last_in(piece.text)):
                piece.mark(*span)
                return


class _Writer:
    """Writes the events of the parser as blocks."""

    def __init__(self, found: Sequence[Formula]) -> None:
        self.blocks = [Block()]
        self._formulas = found
        self._ends: list[str | _Link] = []
        self._code: list[str] | None = None
        self._language = ""
        self._alignments: Sequence[str] = ()
        self._columns: Iterator[str] = iter(())
        self._cell = "td"
        self._number = 0
        self._is_split = False

    def write(self, event: Any) -> None:
        match event:
            case {"Start": str(name)}:
                self._start(name)
            case {"Start": tag}:
                self._start_with(tag)
            case {"End": _}:
                self._end()
            case {"Text": text} | {"Html": text} | {"InlineHtml": text}:
                self._write_text(text)
            case {"Code": text}:
                code = formulas.put_back(text, self._formulas)
                self._add(f"<code>{escape(code)}</code>", code, "code")
            case {"TaskListMarker": is_done}:
                self._add("☑ " if is_done else "☐ ")
            case "Rule":
                self._open("<hr>", "")
                self._end()
            case _:  # breaks of lines, which models mean as such
                self._add("<br>")

    def _add(self, html: str, text: str = "", kind: str = "") -> None:
        block = self.blocks[-1]
        block.pieces.append(Piece(html, text, kind))
        block.length += len(text)

    def _open(self, start: str, end: str) -> None:
        is_too_deep = len(self._ends) >= _DEEPEST
        self._add("" if is_too_deep else start)
        self._ends.append("" if is_too_deep else end)

    def _end(self) -> None:
        end = self._ends.pop()
        if self._code is not None:
            self._end_code()
        if isinstance(end, _Link):
            self._end_link(end)
        else:
            self._add(end)
        if not self._ends:
            self.blocks.append(Block())
        elif end == "</li>" and len(self._ends) == 1:
            self._end_item(str(self._ends[0]))

    def _end_item(self, end: str) -> None:
        """Goes on with a long list in another block, once, so that the rest of the list can be folded."""
        self._number += 1
        if not self._is_split and sum(block.size for block in self.blocks) > _SHOWN_OF_LIST:
            self._is_split = True
            self._add(end)
            self.blocks.append(Block())
            self._add("<ul>" if end == "</ul>" else f'<ol start="{self._number}">')

    def _start(self, name: str) -> None:
        if name in {"TableHead", "TableRow"}:
            self._columns = iter(self._alignments)
            self._cell = "th" if name == "TableHead" else "td"
            is_head = name == "TableHead"
            self._open("<thead><tr>" if is_head else "<tr>", "</tr></thead><tbody>" if is_head else "</tr>")
        elif name == "TableCell":
            alignment = next(self._columns, "None").lower()
            place = f' class="{alignment}"' if alignment in {"right", "center"} else ""
            scope = ' scope="col"' if self._cell == "th" else ""
            self._open(f"<{self._cell}{scope}{place}>", f"</{self._cell}>")
        elif name == "HtmlBlock":
            self._open('<p class="html">', "</p>")
        else:
            tag = _TAGS.get(name)
            self._open(f"<{tag}>" if tag else "", f"</{tag}>" if tag else "")

    def _start_with(self, tag: Any) -> None:
        match tag:
            case {"Heading": {"level": level}}:
                self._open(f'<p class="{level.lower()}">', "</p>")
            case {"BlockQuote": _}:
                self._open("<blockquote>", "</blockquote>")
            case {"List": number}:
                self._number = self._number if self._ends else number or 0
                self._open(
                    "<ul>" if number is None else f'<ol start="{number}">', "</ul>" if number is None else "</ol>"
                )
            case {"Table": alignments}:
                self._alignments = alignments
                self._open(_TABLE, "</tbody></table></div>")
            case {"CodeBlock": kind}:
                self._code, self._language = [], kind["Fenced"] if isinstance(kind, dict) else ""
                self._open("", "")
            case {"Link": {"dest_url": url, "link_type": kind}}:
                self._start_link(url, "" if kind in {"Autolink", "Email"} else "[")
            case {"Image": {"dest_url": url}}:
                self._start_link(url, "![")

    def _write_text(self, text: str) -> None:
        if self._code is not None:
            self._code.append(text)
            return
        for part in formulas.split(text, self._formulas):
            if isinstance(part, str):
                self._write_words(part)
            else:
                self._write_formula(part)

    def _write_words(self, text: str) -> None:
        is_label = any(isinstance(end, _Link) for end in self._ends)
        for place, part in enumerate([text] if is_label else split_addresses(text)):
            if place % 2:
                url = escape(percent_encoded(part))
                self._add(f'<a href="{url}">{escape(part)}</a>', part, "link")
            elif part:
                self._add(str(escape(part)), part, "text")

    def _write_formula(self, formula: Formula) -> None:
        if (words := formulas.boxed_words(formula)) is not None:
            html = f'<span class="boxed">{escape(words)}</span>'
        else:
            html = formulas.mathml(formula) or f'<code class="formula">{escape(formula.source)}</code>'
        self._add(html, formula.latex, "formula")

    def _end_code(self) -> None:
        code = formulas.put_back("".join(self._code or ()), self._formulas)
        self._code = None
        self._add(listing(code, self._language))
        self.blocks[-1].length += len(code)

    def _start_link(self, url: str, sign: str) -> None:
        if any(isinstance(end, _Link) for end in self._ends):  # an image as the label of a link
            self._open("image: ", "")
            return
        url = formulas.put_back(url, self._formulas)
        self._ends.append(_Link(url, sign, len(self.blocks[-1].pieces)))
        self._add(f'<a href="{escape(percent_encoded(url))}">' if is_web(url) else sign)
        if is_web(url) and sign == "![":
            self._add("image: ")

    def _end_link(self, link: _Link) -> None:
        if is_web(link.url):
            label = "".join(piece.text for piece in self.blocks[-1].pieces[link.place :])
            host = host_of(link.url)
            self._add("</a>" if label == link.url else f'</a> <small class="host">({escape(host)})</small>')
        elif link.sign:
            self._add(f"]({escape(link.url)})")
