"""Splits conversations into turns. The result of each tool call is next to the call."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nightjar.core.text import one_line
from nightjar.view.passages import Passage, output_passages, passages, text_passages
from nightjar.view.room import Room
from nightjar.view.texts.answers import Answer
from nightjar.view.tool_calls import LONGEST_NAME, Call, ReadCall, read_call

OUTLINED = 12
"""Conversations of more messages have an outline."""
_LONGEST_WORDS = 80


@dataclass(frozen=True)
class ModelCall:
    """What the request for a turn took. None means unknown."""

    seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None


@dataclass(frozen=True)
class Turn:
    """A message. ``number`` is its position among the messages of prompt and completion, from 1."""

    role: str
    passages: list[Passage]
    reasoning: list[Passage] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    model_call: ModelCall | None = None
    number: int | None = None

    @property
    def words(self) -> str:
        """The first words of the message, or the names of the tools that it calls."""
        texts = (passage.text for passage in (*self.passages, *self.reasoning) if passage.kind != "image")
        said = one_line("\n".join(text[:_LONGEST_WORDS] for text in texts if text.strip()), _LONGEST_WORDS)
        return said or ", ".join(call.name for call in self.calls)[:_LONGEST_WORDS]


def turns(messages: object, reader: ReadCall = read_call, first: int = 1) -> list[Turn]:
    """Returns the turns of a prompt or completion. ``first`` is the number of its first message.

    Any other data, as in imports, is one turn with the role ``text``.
    """
    found = as_messages(messages)
    results = _results(found)
    with_call = set(results.values())
    room = Room(len(found))
    shown = [
        _turn(found, place, results, room, reader, first)
        for place in room.for_each(range(len(found)))
        if place not in with_call
    ]
    if room.is_full:
        shown.append(Turn("text", [Passage("note", "The rest is in the raw JSON")]))
    return shown


def as_messages(messages: object) -> list[Mapping[str, Any]]:
    """Returns a prompt or completion as messages. Data that is no message becomes one with the role ``text``."""
    if not isinstance(messages, list):
        return [{"role": "text", "content": messages}] if messages else []
    return [message if isinstance(message, Mapping) else {"role": "text", "content": message} for message in messages]


def raw_text(message: Mapping[str, Any]) -> str:
    """Returns the text of a message as the model or the tool wrote it, and its tool calls."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    texts = [part["text"] if isinstance(part, Mapping) and "text" in part else part for part in parts]
    calls = [
        f"{call.get('name')}({_text(call.get('arguments') or '')})" for call in _mappings(message.get("tool_calls"))
    ]
    return "\n".join([*(_text(text) for text in texts if not _is_image(text)), *calls])


def plain_text(messages: object) -> str:
    """Returns messages, reasoning and tool calls as one text, for search and comparison."""
    texts = ("\n".join(filter(None, (_reasoning(each), raw_text(each)))) for each in as_messages(messages))
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


def has_colours(turns: Iterable[Turn]) -> bool:
    """Returns whether the output of a tool has colours."""
    results = [passage for turn in turns for call in turn.calls for passage in call.result or ()]
    own = [passage for turn in turns for passage in turn.passages]
    return any(passage.screen and passage.screen.is_coloured for passage in (*results, *own))


def with_model_calls(turns: list[Turn], calls: Sequence[ModelCall]) -> list[Turn]:
    """Returns the turns with the model call of each, if there is one call for each turn of the assistant."""
    places = [place for place, turn in enumerate(turns) if turn.role == "assistant"]
    if len(places) != len(calls):
        return turns
    known = dict(zip(places, calls, strict=True))
    return [replace(turn, model_call=known.get(place)) for place, turn in enumerate(turns)]


def _results(found: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], int]:
    """Returns the place of each call's result, by the places of the message and of the call in it.

    Some programs give the same id to calls of different messages. Their results come in the order of the calls.
    """
    waiting: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
    results: dict[tuple[int, int], int] = {}
    for place, message in enumerate(found):
        for position, call in enumerate(_mappings(message.get("tool_calls"))):
            waiting[str(call.get("id"))].append((place, position))
        call_id = message.get("tool_call_id")
        if message.get("role") == "tool" and call_id and waiting[str(call_id)]:
            results[waiting[str(call_id)].popleft()] = place
    return results


def _turn(
    found: Sequence[Mapping[str, Any]],
    place: int,
    results: Mapping[tuple[int, int], int],
    room: Room,
    reader: ReadCall,
    first: int,
) -> Turn:
    message = found[place]
    is_tool = message.get("role") == "tool"
    calls = []
    for position, call in enumerate(room.for_each(_mappings(message.get("tool_calls")))):
        answer = results.get((place, position))
        shown = reader(call, None if answer is None else found[answer], room)
        calls.append(shown if answer is None else replace(shown, number=first + answer))
    return Turn(
        str(message.get("role"))[:LONGEST_NAME],
        passages(message.get("content"), room, output_passages if is_tool else text_passages),
        passages(_reasoning(message) or None, room),
        calls,
        number=first + place,
    )


def _reasoning(message: Mapping[str, Any]) -> str:
    thinking = [block.get("thinking") for block in _mappings(message.get("thinking_blocks"))]
    return _text(message.get("reasoning_content") or "\n\n".join(str(text) for text in thinking if text))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_image(part: object) -> bool:
    return isinstance(part, Mapping) and "image_url" in part


def _mappings(found: object) -> list[Mapping[str, Any]]:
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
