"""Shows JSON as a tree of ``<details>``, which browsers fold and search without a script.

All text is escaped. The number of values and their depth are bounded, and ``Room`` bounds the length of the texts.
"""

from __future__ import annotations

import json
from collections import deque
from itertools import islice
from typing import Any, TypeAlias

from markupsafe import Markup, escape

from nightjar.core.text import counted
from nightjar.reports.formats import visible
from nightjar.view.room import VALUE, Room

Container: TypeAlias = "dict[str, Any] | list[Any]"

MOST_VALUES, MOST_CHILDREN, DEEPEST = 2_000, 200, 30
_LONGEST_LINE = 80
"""Containers with shorter JSON are shown in one line."""
_MOST_OPEN = 40
"""The lines of a tree that are shown at once. The rest is folded."""
_SHOWN_TEXT, _LONGEST_NAME = 1_000, 200


def parse_container(text: str, room: Room) -> Container | None:
    """Returns the object or list that a text contains as JSON. Returns None for other texts and for empty objects."""
    stripped = text.strip()
    if stripped[:1] + stripped[-1:] not in {"{}", "[]"} or not room.has_for_json(stripped):
        return None
    try:
        found: Container = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    return found or None


def short_json(value: object) -> str | None:
    """Returns a value as JSON in one line. Returns None for long values and for texts of several lines."""
    text = ""
    for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        text += part
        if len(text) > _LONGEST_LINE:
            return None
    return None if "\\n" in text else text


def tree(found: Container, room: Room) -> Markup:
    """Returns an object or list as HTML. The numbers of values that are left out are part of it."""
    return Markup(f'<div class="json" dir="ltr">{_Tree(found, room).html}</div>')  # noqa: S704 - all texts are escaped


class _Tree:
    def __init__(self, found: Container, room: Room) -> None:
        self._room, self._left = room, MOST_VALUES
        self._opened = _opened(found)
        self.html = self._value(found, "", 0)

    def _value(self, value: object, name: str, depth: int) -> str:
        self._left -= 1
        if not isinstance(value, dict | list):
            return f"<div>{name}{self._scalar(value)}</div>"
        if depth and (line := short_json(value)) is not None:
            return f"<div>{name}<span>{self._text(line)}</span></div>"
        size = f"<small>{counted(len(value), 'key' if isinstance(value, dict) else 'item')}</small>"
        if depth >= DEEPEST:
            return f"<div>{name}{size}, deeper than {DEEPEST} levels; see the raw JSON</div>"
        is_open = id(value) in self._opened
        inside = self._children(value, depth)
        return f"<details{' open' if is_open else ''}><summary>{name}{size}</summary>{inside}</details>"

    def _children(self, value: Container, depth: int) -> str:
        named = value.items() if isinstance(value, dict) else enumerate(value)
        shown: list[str] = []
        for name, child in self._room.for_each(islice(named, MOST_CHILDREN), VALUE):
            if self._left <= 0:
                break
            shown.append(
                self._value(child, f'<span class="name">{self._text(str(name)[:_LONGEST_NAME])}</span> ', depth + 1)
            )
        if left_out := len(value) - len(shown):
            shown.append(f"<small>{left_out:,} more; see the raw JSON</small>")
        first, rest = shown[:_MOST_OPEN], shown[_MOST_OPEN:]
        if len(rest) < 2:  # noqa: PLR2004 - as long as the line that would replace it
            return "".join(shown)
        more = f"<details><summary><small>{len(value) - len(first):,} more</small></summary>{''.join(rest)}</details>"
        return "".join(first) + more

    def _scalar(self, value: object) -> str:
        if not isinstance(value, str):
            return f'<span class="number">{self._text(json.dumps(value))}</span>'
        read = self._room.beginning(value)
        shown, rest = escape(visible(read[:_SHOWN_TEXT])), escape(visible(read[_SHOWN_TEXT:]))
        quoted = f'<span dir="auto">{shown}</span>' if "\n" not in read else f'<p dir="auto">{shown}</p>'
        if rest:
            quoted += f"<details><summary>{len(rest):,} more characters</summary>{rest}</details>"
        if left_out := len(value) - len(read):
            quoted += f" <small>{left_out:,} more characters; see the raw JSON</small>"
        return quoted

    def _text(self, text: str) -> str:
        return str(escape(visible(self._room.beginning(text))))


def _opened(found: Container) -> set[int]:
    """Returns the ids of the objects and lists that are open, outer ones first, so that few lines are shown."""
    waiting, opened, lines = deque([found]), set[int](), 0
    while waiting:
        value = waiting.popleft()
        lines += len(value)
        if opened and lines > _MOST_OPEN:
            break
        opened.add(id(value))
        children = islice(value.values() if isinstance(value, dict) else value, _MOST_OPEN)
        waiting += [child for child in children if isinstance(child, dict | list)]
    return opened
