"""``nightjar cache clear``: forgets the answers that were kept.

nightjar cache clear --yes
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption
from nightjar.cli.warehouse.output import number, print_json
from nightjar.clients.answer_cache import open_cache


def cache_clear(
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove all answers that 'eval run --cache' has kept; the results of runs stay.

    Example: nightjar cache clear --yes
    """
    with open_cache() as cache:
        count = sum(cache.info().answers.values())
        if count and not is_sure and sys.stdin.isatty():
            typer.confirm(f"Remove {number(count, 'answer')} from {cache.path}?", abort=True)
        count = cache.clear()
    if as_json:
        print_json({"path": str(cache.path), "removed": count})
    else:
        echo(f"Removed {number(count, 'answer')} from {cache.path}")
