"""Splits conversations into turns, and turns into passages. The result of each tool call is next to the call.

Text stays as the model wrote it. Code and formulas become passages of their own, but nothing is converted to HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from markupsafe import escape

LONGEST_TEXT, LEAST_TEXT = 200_000, 4_000
"""Limits in characters of a message: the most that are shown, and the number shown however long the conversation is."""
LONGEST_CONVERSATION = 2_000_000
"""The limit for all texts, in characters of HTML. Images may have twice as many."""
UNFOLDED = 4_000
"""The characters shown of a passage. The rest is folded, but a browser's search finds it."""
LONGEST_NAME, _LONGEST_LINK = 200, 2_000
_ELEMENT = 150
_Item = TypeVar("_Item")
_MOST_SET_APART = 500
"""The most passages of code and maths in a text. Further passages are shown as plain text."""

# Repetitions are bounded: on a text of many openings without an end, the search would take hours.
_SET_APART = re.compile(
    r"```(?P<language>[\w+#.-]{0,40})[^\n]{0,100}\n(?P<code>.*?)(?:\n[ \t]*```|\Z)"
    r"|(?P<maths>\$\$.{1,500}?\$\$|\\\[.{1,500}?\\\])",
    re.DOTALL,
)
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp)[;,]", re.IGNORECASE)
"""Image formats that contain only pixels, unlike SVG."""


@dataclass(frozen=True)
class Passage:
    kind: str
    """text, code, maths, image, link or note."""
    text: str
    """The text of the passage; for an image, its ``data:`` URL."""
    rest: str = ""
    label: str = ""


@dataclass(frozen=True)
class Call:
    name: str
    arguments: list[Passage]
    result: list[Passage] | None = None


@dataclass(frozen=True)
class ModelCall:
    """What the request for a turn took. None means unknown."""

    seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None


@dataclass(frozen=True)
class Turn:
    role: str
    passages: list[Passage]
    reasoning: list[Passage] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    model_call: ModelCall | None = None


ReadCall: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any] | None, "Room"], Call]
"""Returns how a call and its result (None if there is none) are shown."""


def turns(messages: object, read_call: ReadCall | None = None) -> list[Turn]:
    """Returns the turns of a prompt or completion.

    Any other data, as in imports, is one turn with the role ``text``.
    """
    if not isinstance(messages, list):
        return [Turn("text", passages(messages))] if messages else []
    found = [message if isinstance(message, Mapping) else {"role": "text", "content": message} for message in messages]
    results = {
        str(message["tool_call_id"]): message
        for message in found
        if message.get("role") == "tool" and message.get("tool_call_id")
    }
    called = {str(call.get("id")) for message in found for call in _mappings(message.get("tool_calls"))}
    room = Room(len(found))
    shown = [
        _turn(message, results, room, read_call or _call)
        for message in room.for_each(found)
        if not (message.get("role") == "tool" and str(message.get("tool_call_id")) in called)
    ]
    if room.is_full:
        shown.append(Turn("text", [Passage("note", "The rest is in the raw JSON")]))
    return shown


class Room:
    """The remaining space for a conversation, which bounds the size of its page."""

    def __init__(self, messages: int = 1) -> None:
        self._longest = min(LONGEST_TEXT, max(LEAST_TEXT, LONGEST_CONVERSATION // max(1, messages)))
        self._texts, self._images = LONGEST_CONVERSATION, 2 * LONGEST_CONVERSATION

    @property
    def is_full(self) -> bool:
        return self._texts <= 0

    def for_each(self, found: Iterable[_Item]) -> Iterator[_Item]:
        for item in found:
            if self.is_full:
                return
            self._texts -= _ELEMENT
            yield item

    def beginning(self, text: str) -> str:
        shown = text[: max(0, min(self._longest, self._texts))]
        self._texts -= len(escape(shown))
        return shown

    def reserve(self, characters: int) -> None:
        """Reserves room for the tags around a text."""
        self._texts -= characters

    def has_for_image(self, url: str) -> bool:
        """Returns whether there is room for the image, and reserves the room."""
        self._images -= len(url)
        return self._images >= 0


def passages(content: object, room: Room | None = None) -> list[Passage]:
    room = room or Room()
    if isinstance(content, list):
        return [passage for part in room.for_each(content) for passage in _part(part, room)]
    if content is None:
        return []
    return list(_passages(content if isinstance(content, str) else pretty(content), room))


def pretty(value: object) -> str:
    """Indents a JSON value or JSON text. Returns other texts and very long texts unchanged."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if len(value) <= LONGEST_TEXT else value
        except (ValueError, RecursionError):
            return str(value)
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def plain_text(messages: object) -> str:
    """Returns messages and tool calls as one text, for search and comparison."""
    texts = []
    for turn in turns(messages):
        shown = [passage for passage in (*turn.reasoning, *turn.passages) if passage.kind != "image"]
        lines = [passage.text + passage.rest for passage in shown]
        lines += [f"{call.name}({''.join(part.text + part.rest for part in call.arguments)})" for call in turn.calls]
        texts.append("\n".join(lines))
    return "\n\n".join(texts)


def _turn(
    message: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]], room: Room, read_call: ReadCall
) -> Turn:
    thinking = [block.get("thinking") for block in _mappings(message.get("thinking_blocks"))]
    reasoning = message.get("reasoning_content") or "\n\n".join(str(text) for text in thinking if text)
    return Turn(
        str(message.get("role"))[:LONGEST_NAME],
        passages(message.get("content"), room),
        passages(reasoning or None, room),
        [
            read_call(call, results.get(str(call.get("id"))), room)
            for call in room.for_each(_mappings(message.get("tool_calls")))
        ],
    )


def _call(call: Mapping[str, Any], result: Mapping[str, Any] | None, room: Room) -> Call:
    arguments = room.beginning(pretty(call.get("arguments") or "{}"))
    return Call(
        str(call.get("name"))[:LONGEST_NAME],
        [folded("code", arguments)],
        None if result is None else passages(result.get("content"), room),
    )


def _mappings(found: object) -> list[Mapping[str, Any]]:
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _part(part: object, room: Room) -> Iterator[Passage]:
    match part:
        case {"text": str(text)}:
            yield from _passages(text, room)
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
            yield from _passages(pretty(part), room)


def _passages(text: str, room: Room) -> Iterator[Passage]:
    shown, at = room.beginning(text), 0
    for found in islice(_SET_APART.finditer(shown), _MOST_SET_APART):
        if before := shown[at : found.start()].strip("\n"):
            yield folded("text", before)
        if found["maths"] is None:
            yield folded("code", found["code"], found["language"])
        else:
            yield folded("maths", found["maths"])
        at = found.end()
    if (after := shown[at:].strip("\n")) or not shown.strip():
        yield folded("text", after)
    if len(text) > len(shown):
        yield Passage("note", f"{len(text) - len(shown):,} more characters; see the raw JSON")


def folded(kind: str, text: str, label: str = "") -> Passage:
    if len(text) <= UNFOLDED * 3 // 2:
        return Passage(kind, text, label=label)
    cut = text.rfind("\n", UNFOLDED // 2, UNFOLDED) + 1 or UNFOLDED
    return Passage(kind, text[:cut], text[cut:], label)
