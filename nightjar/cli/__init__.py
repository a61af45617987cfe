"""The command line: each command parses, calls and prints; one file a command.

Results go to stdout, progress and notices to stderr. An expected error is one line on stderr and exit code 1, a
usage error exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_OPTIONAL_VALUES = {"--resume": "latest", "-R": "latest"}
"""Options whose value may be left out, and what it is then."""


def main() -> None:
    """Runs the command that was typed."""
    from nightjar.cli.app import app
    from nightjar.errors import NightjarError

    try:
        app(args=with_optional_values(sys.argv[1:]))
    except NightjarError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)


def with_optional_values(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with the value of ``--resume`` filled in where it was left out."""
    filled: list[str] = []
    for position, argument in enumerate(arguments):
        filled.append(argument)
        following = arguments[position + 1] if position + 1 < len(arguments) else "-"
        if argument in _OPTIONAL_VALUES and following.startswith("-"):
            filled.append(_OPTIONAL_VALUES[argument])
    return filled
