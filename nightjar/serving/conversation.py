"""A conversation as people read it: turns, with the result of a tool beside its call, and texts in passages.

A text stays what the model wrote: code and formulas are set apart, nothing is made into HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

LONGEST_TEXT, LEAST_TEXT = 200_000, 4_000
"""How many characters of a message are shown, and how many whatever the length of the conversation."""
LONGEST_CONVERSATION = 4_000_000
UNFOLDED = 4_000
"""How many characters of a passage are seen at once; the rest is folded, where a browser's search finds it."""
_MOST_SET_APART = 500
"""How many passages of code and maths a text may have; what follows is text."""

# What is looked for without an end is bounded: a text of beginnings alone would take hours.
_SET_APART = re.compile(
    r"```(?P<language>[\w+#.-]{0,40})[^\n]{0,100}\n(?P<code>.*?)(?:\n[ \t]*```|\Z)"
    r"|(?P<maths>\$\$.{1,500}?\$\$|\\\[.{1,500}?\\\])",
    re.DOTALL,
)


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


def turns(messages: str | Sequence[Mapping[str, Any]] | None) -> list[Turn]:
    """Returns the turns of a prompt or completion; one of role ``text`` where that is no list of messages."""
    if messages is None or isinstance(messages, str):
        return [Turn("text", passages(messages))] if messages else []
    results = {
        message["tool_call_id"]: message
        for message in messages
        if message.get("role") == "tool" and message.get("tool_call_id")
    }
    called = {call.get("id") for message in messages for call in message.get("tool_calls") or ()}
    longest = min(LONGEST_TEXT, max(LEAST_TEXT, LONGEST_CONVERSATION // max(1, len(messages))))
    return [
        _turn(message, results, longest)
        for message in messages
        if not (message.get("role") == "tool" and message.get("tool_call_id") in called)
    ]


def passages(content: object, longest: int = LONGEST_TEXT) -> list[Passage]:
    """Returns the passages of a message's content: a text, or parts of several kinds.

    Args:
        content: as a message has it.
        longest: how many characters of a text.
    """
    if isinstance(content, list):
        return [passage for part in content for passage in _part(part, longest)]
    if content is None:
        return []
    return list(_passages(content if isinstance(content, str) else pretty(content), longest))


def pretty(value: object) -> str:
    """Returns a value as JSON that is read by people; a text that is JSON as that, any other text as it is."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def plain_text(messages: str | Sequence[Mapping[str, Any]] | None) -> str:
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


def _turn(message: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]], longest: int) -> Turn:
    thinking = [block.get("thinking") for block in message.get("thinking_blocks") or ()]
    reasoning = message.get("reasoning_content") or "\n\n".join(text for text in thinking if text)
    calls = [
        Call(
            str(call.get("name")),
            [_folded("code", pretty(call.get("arguments") or "{}")[:longest])],
            passages(results[call["id"]].get("content"), longest) if call.get("id") in results else None,
        )
        for call in message.get("tool_calls") or ()
    ]
    return Turn(
        str(message.get("role")), passages(message.get("content"), longest), passages(reasoning or None, longest), calls
    )


def _part(part: object, longest: int) -> Iterator[Passage]:
    match part:
        case {"text": str(text)}:
            yield from _passages(text, longest)
        case {"image_url": {"url": str(url)}} if url.startswith("data:image/"):
            yield Passage("image", url)
        case {"image_url": {"url": str(url)}} if url.startswith(("https://", "http://")):
            yield Passage("link", url)
        case {"input_audio": _}:
            yield Passage("note", "audio, which is in the raw JSON")
        case _:
            yield from _passages(pretty(part), longest)


def _passages(text: str, longest: int) -> Iterator[Passage]:
    shown, at = text[:longest], 0
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
    if len(text) > longest:
        yield Passage("note", f"{len(text) - longest:,} more characters, which are in the raw JSON")


def _folded(kind: str, text: str, label: str = "") -> Passage:
    if len(text) <= UNFOLDED * 3 // 2:
        return Passage(kind, text, label=label)
    cut = text.rfind("\n", UNFOLDED // 2, UNFOLDED) + 1 or UNFOLDED
    return Passage(kind, text[:cut], text[cut:], label)
