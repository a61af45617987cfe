"""The reference of the command line: a page for each command of ``nightjar``, from the help of the command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from markdown_text import code, escaped, table

from nightjar.cli.app import COMMANDS, GROUPS, summary
from nightjar.cli.app import _load as load

_EXAMPLES = re.compile(r"^Examples?: ")


def pages() -> Iterator[tuple[str, str]]:
    yield "commands/index.md", _overview()
    for name in _first_words():
        yield f"commands/{name}.md", _page(name)


def _first_words() -> list[str]:
    return sorted(dict.fromkeys(words.partition(" ")[0] for words in COMMANDS))


def _subcommands(words: str) -> list[str]:
    return [command for command in COMMANDS if command.startswith(f"{words} ")]


def _overview() -> str:
    rows = []
    for name in _first_words():
        for words in dict.fromkeys([name, *_subcommands(name)]):
            anchor = "" if words == name else f"#nightjar-{words.replace(' ', '-')}"
            rows.append((f"[`nightjar {words}`]({name}.md{anchor})", escaped(summary(words))))
    return "\n\n".join(
        [
            "# Commands",
            "After this page, you can find the command for a task. `nightjar COMMAND --help` prints the same texts.",
            table(("command", "purpose"), rows),
        ]
    )


def _page(name: str) -> str:
    introduction = f"After this page, you know every flag of `nightjar {name}`."
    parts = [f"# nightjar {name}", introduction, *_description(name)]
    for words in _subcommands(name):
        parts += [f"## nightjar {words}", *_description(words)]
    return "\n\n".join(parts)


def _description(words: str) -> Iterator[str]:
    command = load(words)
    context = command.make_context(f"nightjar {words}", [], resilient_parsing=True)
    for paragraph in (command.help or GROUPS[words]).split("\n\n"):
        yield _paragraph(paragraph)
    if words in GROUPS:
        return
    yield f"```text\n{' '.join(command.get_usage(context).split()).removeprefix('Usage: ')}\n```"
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.params:
        if record := parameter.get_help_record(context):
            panel = getattr(parameter, "rich_help_panel", None) or _kind(parameter)
            panels.setdefault(panel, []).append((_names(record[0]), escaped(record[1])))
    for panel, rows in panels.items():
        yield f"**{panel}**"
        yield table(("name", "meaning"), rows)


def _names(declaration: str) -> str:
    """Returns ``-m, --model <str>`` as code that is broken between names only."""
    return ", ".join(code(name, is_whole=True) for name in declaration.split(", "))


def _kind(parameter: Any) -> str:
    return "Arguments" if parameter.param_type_name == "argument" else "Options"


def _paragraph(text: str) -> str:
    """Returns a paragraph of a help text; commands become a block."""
    text = text.replace(r"\[", "[")  # the escape of Rich
    if _EXAMPLES.match(text) or text.startswith("nightjar "):
        return "\n".join(["```sh", *_EXAMPLES.sub("", text).split(" | "), "```"])
    return escaped(text)
