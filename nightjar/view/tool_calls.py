"""Shows tool calls: short arguments in the line of the call, long arguments below it by name, then the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, TypeAlias

from nightjar.view.json_trees import short_json
from nightjar.view.passages import Passage, folded, json_passage, output_passages, passages
from nightjar.view.room import Room

LONGEST_NAME = 200
_CODE = {
    **dict.fromkeys(("command", "cmd", "bash", "shell_command"), "bash"),
    **dict.fromkeys(("code", "python", "python_code"), "python"),
    **dict.fromkeys(("sql", "sql_query", "statement"), "sql"),
    **dict.fromkeys(("javascript", "js"), "javascript"),
    **dict.fromkeys(("diff", "patch"), "diff"),
}
"""The names of arguments that are code, and its language unless the name of the tool says another one."""
_LANGUAGES = ("python", "javascript", "typescript", "bash", "sql", "ruby", "julia")
_PATHS = ("path", "file_path", "file", "filename", "file_name")


@dataclass(frozen=True)
class Call:
    """A tool call. ``number`` is the number of the message with the result. Without a result, ``result`` is None."""

    name: str
    short: list[tuple[str, str]]
    """Arguments of one line, by name."""
    arguments: list[Passage]
    result: list[Passage] | None = None
    number: int | None = None


ReadCall: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any] | None, Room], Call]
"""Returns how a call and its result (None if there is none) are shown."""


def read_call(call: Mapping[str, Any], result: Mapping[str, Any] | None, room: Room) -> Call:
    name, found = str(call.get("name"))[:LONGEST_NAME], arguments_of(call)
    short, long = shown_arguments(name, found, room)
    shown = None if result is None else passages(result.get("content"), room, output_passages)
    return Call(name, short, long, shown)


def arguments_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call. Arguments that are no JSON object have no name."""
    found = call.get("arguments")
    with suppress(ValueError, RecursionError):
        found = json.loads(found) if isinstance(found, str) else found
    if isinstance(found, dict):
        return {str(name)[:LONGEST_NAME]: value for name, value in found.items()}
    return {"": found} if found else {}


def shown_arguments(
    tool: str, arguments: Mapping[str, Any], room: Room, hidden: str | None = None
) -> tuple[list[tuple[str, str]], list[Passage]]:
    """Returns the arguments for the line of a call, and those that need a block of their own, without ``hidden``."""
    short, long = [], []
    for name, value in room.for_each((name, value) for name, value in arguments.items() if name != hidden):
        language = _language(tool, name, value, arguments)
        line = None if language else short_json(value)
        if line is None:
            long.append(_block(name, value, language, room))
        else:
            short.append((name, room.beginning(line if name else str(value))))
    return short, long


def _block(name: str, value: object, language: str, room: Room) -> Passage:
    if isinstance(value, str):
        return replace(folded("code", room.beginning(value), name), language=language)
    text = json.dumps(value, ensure_ascii=False)
    found = json_passage(text, room)
    return replace(found, label=name) if found else folded("code", room.beginning(text), name)


def _language(tool: str, name: str, value: object, arguments: Mapping[str, Any]) -> str:
    """Returns the language of an argument with code, from its name, the tool's name or the name of a file beside it."""
    if not isinstance(value, str):
        return ""
    if own := _CODE.get(name.lower()):
        return next((language for language in _LANGUAGES if language in tool.lower()), own)
    if "\n" not in value:
        return ""
    paths = (path for key in _PATHS if isinstance(path := arguments.get(key), str))
    return next((PurePath(path).suffix[1:] for path in paths), "")
