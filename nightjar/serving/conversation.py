"""A conversation as people read it: turns, with the result of a tool beside its call, and texts in passages.

A text stays what the model wrote: code and formulas are set apart, nothing is made into HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from markupsafe import escape

LONGEST_TEXT, LEAST_TEXT = 200_000, 4_000
"""How many characters of a message are shown, and how many whatever the length of the conversation."""
LONGEST_CONVERSATION = 2_000_000
"""How many characters of HTML the texts of a conversation become; as much again are its images, twice."""
UNFOLDED = 4_000
"""How many characters of a passage are seen at once; the rest is folded, where a browser's search finds it."""
_LONGEST_NAME, _LONGEST_LINK = 200, 2_000
_ELEMENT = 150
"""About how many characters of HTML stand around what is shown."""
_Item = TypeVar("_Item")
_MOST_SET_APART = 500
"""How many passages of code and maths a text may have; what follows is text."""

# What is looked for without an end is bounded: a text of beginnings alone would take hours.
_SET_APART = re.compile(
    r"```(?P<language>[\w+#.-]{0,40})[^\n]{0,100}\n(?P<code>.*?)(?:\n[ \t]*```|\Z)"
    r"|(?P<maths>\$\$.{1,500}?\$\$|\\\[.{1,500}?\\\])",
    re.DOTALL,
)
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp)[;,]", re.IGNORECASE)
"""Images that hold nothing but pixels."""


@dataclass(frozen=True)
class Passage:
    """A part of a message.

    Attributes:
        kind: text, code, maths, image, link or note.
        text: what is seen; of an image its ``data:`` URL.
        rest: what is folded.
        label: the language of code.
    """

    kind: str
    text: str
    rest: str = ""
    label: str = ""


@dataclass(frozen=True)
class Call:
    """A call of a tool; without a result where none came."""

    name: str
    arguments: list[Passage]
    result: list[Passage] | None = None


@dataclass(frozen=True)
class Turn:
    """A message, with what came of its calls."""

    role: str
    passages: list[Passage]
    reasoning: list[Passage] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


def turns(messages: object) -> list[Turn]:
    """Returns the turns of a prompt or completion; one of role ``text`` where that is no list of messages.

    What other programs have published may be of any form: it is shown as it is.
    """
    if not isinstance(messages, list):
        return [Turn("text", passages(messages))] if messages else []
    said = [message if isinstance(message, Mapping) else {"role": "text", "content": message} for message in messages]
    results = {str(one["tool_call_id"]): one for one in said if one.get("role") == "tool" and one.get("tool_call_id")}
    called = {str(call.get("id")) for one in said for call in _mappings(one.get("tool_calls"))}
    room = _Room(len(said))
    shown = [
        _turn(message, results, room)
        for message in room.for_each(said)
        if not (message.get("role") == "tool" and str(message.get("tool_call_id")) in called)
    ]
    if room.is_full:
        shown.append(Turn("text", [Passage("note", "There is more, which is in the raw JSON")]))
    return shown


class _Room:
    """How much of a conversation is still shown, so that no page grows with what a model says."""

    def __init__(self, messages: int = 1) -> None:
        self._longest = min(LONGEST_TEXT, max(LEAST_TEXT, LONGEST_CONVERSATION // max(1, messages)))
        self._texts, self._images = LONGEST_CONVERSATION, 2 * LONGEST_CONVERSATION

    @property
    def is_full(self) -> bool:
        """Says whether nothing more is shown."""
        return self._texts <= 0

    def for_each(self, found: Iterable[_Item]) -> Iterator[_Item]:
        """Yields what there is room for; that something is there takes room, too."""
        for one in found:
            if self.is_full:
                return
            self._texts -= _ELEMENT
            yield one

    def beginning(self, text: str) -> str:
        """Returns as much of a text as there is room for."""
        shown = text[: max(0, min(self._longest, self._texts))]
        self._texts -= len(escape(shown))
        return shown

    def has_for_image(self, url: str) -> bool:
        """Says whether there is room for an image, and takes it."""
        self._images -= len(url)
        return self._images >= 0


def passages(content: object, room: _Room | None = None) -> list[Passage]:
    """Returns the passages of a message's content: a text, or parts of several kinds."""
    room = room or _Room()
    if isinstance(content, list):
        return [passage for part in room.for_each(content) for passage in _part(part, room)]
    if content is None:
        return []
    return list(_passages(content if isinstance(content, str) else pretty(content), room))


def pretty(value: object) -> str:
    """Returns a value as JSON that is read by people; a text that is JSON as that, any other or long text as it is."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if len(value) <= LONGEST_TEXT else value
        except (ValueError, RecursionError):
            return str(value)
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def plain_text(messages: object) -> str:
    """Returns what was said, as one text: for a comparison of two completions."""
    return "\n\n".join(
        "\n".join(
            [
                *(
                    passage.text + passage.rest
                    for passage in (*turn.reasoning, *turn.passages)
                    if passage.kind != "image"
                ),
                *(f"{call.name}({''.join(one.text + one.rest for one in call.arguments)})" for call in turn.calls),
            ]
        )
        for turn in turns(messages)
    )


def _turn(message: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]], room: _Room) -> Turn:
    thinking = [block.get("thinking") for block in _mappings(message.get("thinking_blocks"))]
    reasoning = message.get("reasoning_content") or "\n\n".join(str(text) for text in thinking if text)
    return Turn(
        str(message.get("role"))[:_LONGEST_NAME],
        passages(message.get("content"), room),
        passages(reasoning or None, room),
        [_call(call, results, room) for call in room.for_each(_mappings(message.get("tool_calls")))],
    )


def _call(call: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]], room: _Room) -> Call:
    arguments = room.beginning(pretty(call.get("arguments") or "{}"))
    result = results.get(str(call.get("id")))
    return Call(
        str(call.get("name"))[:_LONGEST_NAME],
        [_folded("code", arguments)],
        None if result is None else passages(result.get("content"), room),
    )


def _mappings(found: object) -> list[Mapping[str, Any]]:
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _part(part: object, room: _Room) -> Iterator[Passage]:
    match part:
        case {"text": str(text)}:
            yield from _passages(text, room)
        case {"image_url": {"url": str(url)} | str(url)} if _IMAGE.match(url):
            has_room = room.has_for_image(url)
            yield Passage("image", url) if has_room else Passage("note", "a large image, which is in the raw JSON")
        case {"image_url": {"url": str(url)} | str(url)} if url.startswith("data:"):
            yield Passage("note", f"{url[:30]}…, an image of a kind that is not shown; it is in the raw JSON")
        case {"image_url": {"url": str(url)} | str(url)} if (
            url.startswith(("https://", "http://")) and len(url) <= _LONGEST_LINK
        ):
            yield Passage("link", room.beginning(url))
        case {"input_audio": _}:
            yield Passage("note", "audio, which is in the raw JSON")
        case _:
            yield from _passages(pretty(part), room)


def _passages(text: str, room: _Room) -> Iterator[Passage]:
    shown, at = room.beginning(text), 0
    for found in islice(_SET_APART.finditer(shown), _MOST_SET_APART):
        if before := shown[at : found.start()].strip("\n"):
            yield _folded("text", before)
        if found["maths"] is None:
            yield _folded("code", found["code"], found["language"])
        else:
            yield _folded("maths", found["maths"])
        at = found.end()
    if (after := shown[at:].strip("\n")) or not shown.strip():
        yield _folded("text", after)
    if len(text) > len(shown):
        yield Passage("note", f"{len(text) - len(shown):,} more characters, which are in the raw JSON")


def _folded(kind: str, text: str, label: str = "") -> Passage:
    if len(text) <= UNFOLDED * 3 // 2:
        return Passage(kind, text, label=label)
    cut = text.rfind("\n", UNFOLDED // 2, UNFOLDED) + 1 or UNFOLDED
    return Passage(kind, text[:cut], text[cut:], label)
