"""Splits conversations into turns, and turns into passages. The result of each tool call is next to the call.

Passages contain the text as the model wrote it. Templates render it with ``nightjar.view.texts``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from markupsafe import escape

from nightjar.view.texts.answers import Answer

LONGEST_TEXT, LEAST_TEXT = 200_000, 4_000
"""Limits in characters of a message: the most that are shown, and the number shown however long the conversation is."""
LONGEST_CONVERSATION = 2_000_000
"""The limit for all texts, in characters of HTML. Images may have twice as many."""
UNFOLDED = 4_000
"""The characters shown of a passage. The rest is folded, but a browser's search finds it."""
LONGEST_NAME, _LONGEST_LINK = 200, 2_000
MOST_RENDERED = 400_000
"""The limit in characters for the texts of a conversation that are shown as Markdown. Further texts are plain."""
_ELEMENT = 150
_Item = TypeVar("_Item")
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp)[;,]", re.IGNORECASE)
"""Image formats that contain only pixels, unlike SVG."""


@dataclass(frozen=True)
class Passage:
    kind: str
    """markdown, text, code, image, link or note."""
    text: str
    """The text of the passage; for an image, its ``data:`` URL."""
    rest: str = ""
    label: str = ""
    answer: str | None = None
    """The extracted answer, if this passage is the last that has it."""


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
        self._rendered = MOST_RENDERED

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

    def renders(self, text: str) -> bool:
        """Returns whether there is room for the text as Markdown, and reserves the room."""
        self._rendered -= len(text)
        return self._rendered >= 0

    def has_for_image(self, url: str) -> bool:
        """Returns whether there is room for the image, and reserves the room."""
        self._images -= len(url)
        return self._images >= 0


def passages(content: object, room: Room | None = None, *, is_markdown: bool = True) -> list[Passage]:
    """Returns the passages of a message. What tools return is no Markdown."""
    room = room or Room()
    if isinstance(content, list):
        return [passage for part in room.for_each(content) for passage in _part(part, room, is_markdown)]
    if content is None:
        return []
    text = content if isinstance(content, str) else pretty(content)
    return list(_passages(text, room, is_markdown and isinstance(content, str)))


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


def with_answer(found: list[Turn], answer: str | None) -> list[Turn]:
    """Returns the turns of a completion, with the extracted answer in the last text of the assistant that has it."""
    sought = Answer(answer)
    for place, turn in reversed(list(enumerate(found))):
        for number, passage in reversed(list(enumerate(turn.passages))):
            if turn.role in {"assistant", "text"} and sought.last_in(passage.text + passage.rest):
                shown = [*turn.passages[:number], replace(passage, answer=answer), *turn.passages[number + 1 :]]
                return [*found[:place], replace(turn, passages=shown), *found[place + 1 :]]
    return found


def _turn(
    message: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]], room: Room, read_call: ReadCall
) -> Turn:
    thinking = [block.get("thinking") for block in _mappings(message.get("thinking_blocks"))]
    reasoning = message.get("reasoning_content") or "\n\n".join(str(text) for text in thinking if text)
    return Turn(
        str(message.get("role"))[:LONGEST_NAME],
        passages(message.get("content"), room, is_markdown=message.get("role") != "tool"),
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
        None if result is None else passages(result.get("content"), room, is_markdown=False),
    )


def _mappings(found: object) -> list[Mapping[str, Any]]:
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _part(part: object, room: Room, is_markdown: bool) -> Iterator[Passage]:
    match part:
        case {"text": str(text)}:
            yield from _passages(text, room, is_markdown)
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
            yield from _passages(pretty(part), room, is_markdown=False)


def _passages(text: str, room: Room, is_markdown: bool) -> Iterator[Passage]:
    shown = room.beginning(text)
    yield folded("markdown" if is_markdown and room.renders(shown) else "text", shown)
    if len(text) > len(shown):
        yield Passage("note", f"{len(text) - len(shown):,} more characters; see the raw JSON")


def folded(kind: str, text: str, label: str = "") -> Passage:
    if len(text) <= UNFOLDED * 3 // 2:
        return Passage(kind, text, label=label)
    cut = text.rfind("\n", UNFOLDED // 2, UNFOLDED) + 1 or UNFOLDED
    return Passage(kind, text[:cut], text[cut:], label)
