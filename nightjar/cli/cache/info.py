"""``nightjar cache info``: what is in the cache of answers.

nightjar cache info --json
"""

from __future__ import annotations

from rich.filesize import decimal as size

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption
from nightjar.cli.warehouse.output import number, print_json, print_labelled
from nightjar.clients.answer_cache import open_cache


def cache_info(as_json: JsonOption = False) -> None:
    """Show where the answers are that 'eval run --cache' keeps, how many, of which models, and since when.

    Example: nightjar cache info
    """
    with open_cache() as cache:
        found = cache.info()
    if as_json:
        print_json(found)
        return
    lines = {"Cache": str(found.path), "Size": size(found.size_bytes)}
    lines["Holds"] = number(sum(found.answers.values()), "answer")
    if found.oldest and found.newest:
        lines["Kept"] = f"{found.oldest:%Y-%m-%d %H:%M} to {found.newest:%Y-%m-%d %H:%M} UTC"
    print_labelled(lines)
    for model, count in found.answers.items():
        echo(f"{count:>10,}  {model}")
