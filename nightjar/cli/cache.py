"""``nightjar cache``: the model responses that ``eval run --cache`` keeps."""

from __future__ import annotations

import sys

import typer
from rich.filesize import decimal as size

from nightjar.cli.options import JsonOption, YesOption
from nightjar.cli.output import print_json, print_labelled
from nightjar.cli.terminal import echo
from nightjar.clients.answer_cache import open_cache
from nightjar.core.text import counted


def cache_info(as_json: JsonOption = False) -> None:
    """Show the location, size and dates of the cache of 'eval run --cache', and the responses per model.

    Example: nightjar cache info
    """
    with open_cache() as cache:
        found = cache.info()
    if as_json:
        print_json(found)
        return
    lines = {"Cache": str(found.path), "Size": size(found.size_bytes)}
    lines["Holds"] = counted(sum(found.answers.values()), "response")
    if found.oldest and found.newest:
        lines["From"] = f"{found.oldest:%Y-%m-%d %H:%M} to {found.newest:%Y-%m-%d %H:%M} UTC"
    print_labelled(lines)
    for model, count in found.answers.items():
        echo(f"{count:>10,}  {model}")


def cache_clear(is_sure: YesOption = False, as_json: JsonOption = False) -> None:
    """Delete all model responses that 'eval run --cache' has kept. The results of runs stay unchanged.

    Example: nightjar cache clear --yes
    """
    with open_cache() as cache:
        count = sum(cache.info().answers.values())
        if count and not is_sure and sys.stdin.isatty():
            typer.confirm(f"Delete {counted(count, 'response')} from {cache.path}?", abort=True)
        count = cache.clear()
    if as_json:
        print_json({"path": str(cache.path), "removed": count})
    else:
        echo(f"Deleted {counted(count, 'response')} from {cache.path}")
