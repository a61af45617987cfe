"""Splits the content of messages into passages: text, JSON, the output of tools, images and notes.

Passages contain the text as the model wrote it. Templates render it with ``nightjar.view.texts``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from markupsafe import Markup

from nightjar.view.folding import fold_position
from nightjar.view.json_trees import parse_container, short_json, tree
from nightjar.view.room import LONGEST_TEXT, Room
from nightjar.view.terminal import Screen, screen

_LONGEST_LINK = 2_000
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp)[;,]", re.IGNORECASE)
"""Image formats that contain only pixels, unlike SVG."""

_READ_FOR_COLUMNS = 4_000
_COLUMNS = re.compile(r"^[ \t]?[|+│┌├└║╔╠╚]|[-─═]{3}[+┼ ][-─═]{3}|\S {2,20}\S| [|│] ")
"""The border of a table, a rule with columns, or columns set with spaces."""


@dataclass(frozen=True)
class Passage:
    """A part of a message. ``html`` is a tree of JSON; ``screen`` is the output of a tool; ``label`` is a name."""

    kind: str
    """markdown, text, code, json, output, image, link or note."""
    text: str
    """The text of the passage; for an image, its ``data:`` URL."""
    rest: str = ""
    label: str = ""
    language: str = ""
    html: Markup | None = None
    screen: Screen | None = None
    is_aligned: bool = False
    """Whether the lines of an output have columns, so that lines must not be wrapped."""
    answer: str | None = None
    """The extracted answer, if this passage is the last that has it."""


ReadText: TypeAlias = Callable[[str, Room], Iterator[Passage]]
"""Returns the passages of a text."""


def passages(content: object, room: Room | None = None, read_text: ReadText | None = None) -> list[Passage]:
    """Returns the passages of a message's content. ``read_text`` splits its texts; the default is for messages."""
    room, read_text = room or Room(), read_text or text_passages
    if isinstance(content, list):
        return [passage for part in room.for_each(content) for passage in _part(part, room, read_text)]
    if content is None:
        return []
    return list(read_text(content, room) if isinstance(content, str) else _value_passages(content, room))


def pretty(value: object) -> str:
    """Indents a JSON value or JSON text. Returns other texts and very long texts unchanged."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if len(value) <= LONGEST_TEXT else value
        except (ValueError, RecursionError):
            return str(value)
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def text_passages(text: str, room: Room) -> Iterator[Passage]:
    """Yields the passages of a text. A text that is JSON as a whole becomes a tree."""
    if whole := json_passage(text, room):
        yield whole
        return
    shown = room.beginning(text)
    yield folded("markdown" if room.renders(shown) else "text", shown)
    if len(text) > len(shown):
        yield Passage("note", f"{len(text) - len(shown):,} more characters; see the raw JSON")


def output_passages(text: str, room: Room) -> Iterator[Passage]:
    """Yields the output of a tool: a tree of JSON, or what a terminal shows."""
    found = json_passage(text, room)
    yield found or Passage("output", text, screen=output_screen(text, room), is_aligned=is_aligned(text))


def is_aligned(text: str) -> bool:
    """Returns whether at least two lines at the beginning of an output look like the rows of a table."""
    return sum(1 for line in text[:_READ_FOR_COLUMNS].split("\n") if _COLUMNS.search(line)) > 1


def output_screen(text: str, room: Room) -> Screen:
    read = room.beginning(text)
    shown = screen(read)
    room.reserve(max(0, len(shown.shown) + len(shown.folded) - len(read)))
    return replace(shown, left_out=shown.left_out + len(text) - len(read))


def json_passage(text: str, room: Room) -> Passage | None:
    """Returns the tree of a text that is a JSON object or list. Returns None for other texts and for short JSON."""
    found = parse_container(text, room)
    return Passage("json", text, html=tree(found, room)) if found and short_json(found) is None else None


def value_passage(text: str, room: Room) -> Passage:
    """Returns a value that is no message: a tree of JSON, short JSON in one line, or the text."""
    found = parse_container(text, room)
    if found is None:
        return Passage("text", text)
    line = short_json(found)
    return Passage("json", text, html=tree(found, room)) if line is None else Passage("text", line)


def folded(kind: str, text: str, label: str = "") -> Passage:
    cut = fold_position(text)
    return Passage(kind, text, label=label) if cut is None else Passage(kind, text[:cut], text[cut:], label)


def _value_passages(value: object, room: Room) -> Iterator[Passage]:
    text = pretty(value)
    shown = room.beginning(text)
    yield json_passage(text, room) or folded("code", shown)
    if len(text) > len(shown):
        yield Passage("note", f"{len(text) - len(shown):,} more characters; see the raw JSON")


def _part(part: object, room: Room, read_text: ReadText) -> Iterator[Passage]:
    match part:
        case {"text": str(text)}:
            yield from read_text(text, room)
        case {"image_url": {"url": str(url)} | str(url)} if _IMAGE.match(url):
            has_room = room.has_for_image(url)
            yield Passage("image", url) if has_room else Passage("note", "a large image; see the raw JSON")
        case {"image_url": {"url": str(url)} | str(url)} if url.startswith("data:"):
            yield Passage("note", f"{url[:30]}…, an image in a format that is not shown; see the raw JSON")
        case {"image_url": {"url": str(url)} | str(url)} if (
            url.startswith(("https://", "http://")) and len(url) <= _LONGEST_LINK
        ):
            yield Passage("link", room.beginning(url))
        case {"input_audio": _}:
            yield Passage("note", "audio; see the raw JSON")
        case _:
            yield from _value_passages(part, room)
