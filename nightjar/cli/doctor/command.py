"""Runs the checks at the same time, each for a few seconds at most, and prints what they found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from threading import Thread

import typer

from nightjar.cli.doctor.checks import CHECKS, Part, State
from nightjar.cli.options import JsonOption
from nightjar.cli.output import print_json
from nightjar.cli.terminal import echo
from nightjar.core.secrecy import error_text

LONGEST_SECONDS = 10.0

_MARKS = {State.READY: "✓", State.ABSENT: "–", State.BROKEN: "✗"}


def doctor(as_json: JsonOption = False) -> None:
    """Show what this machine has for runs, and what each missing part disables.

    Exits with code 1 if a part is broken. A missing optional part is no error. No secret is shown, and nothing waits
    longer than 10 seconds.

    Example: nightjar doctor --json
    """
    parts = examine(CHECKS)
    is_well = all(part.state is not State.BROKEN for part in parts.values())
    if as_json:
        print_json({"is_well": is_well, "parts": {name: asdict(part) for name, part in parts.items()}})
    else:
        width = max(map(len, parts)) + 2
        for name, part in parts.items():
            echo(f"{_MARKS[part.state]} {name:<{width}}{part.found}")
            for label, text in (("disables", part.disables), ("to do", part.advice)):
                if text:
                    echo(f"  {'':<{width}}{label}: {text}")
    raise typer.Exit(int(not is_well))


def examine(checks: Mapping[str, Callable[[], Part]], seconds: float = LONGEST_SECONDS) -> dict[str, Part]:
    """Runs checks in threads. A check that raises, or has no result after ``seconds``, is a broken part."""
    parts: dict[str, Part] = {}

    def run(name: str, check: Callable[[], Part]) -> None:
        try:
            part = check()
        except Exception as error:  # noqa: BLE001 - what is broken is reported
            part = Part(State.BROKEN, error_text(error).strip().partition("\n")[0])
        parts[name] = part

    threads = [Thread(target=run, args=one, daemon=True) for one in checks.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = Part(State.BROKEN, f"no answer in {seconds:g} s")
    return {name: parts.get(name, late) for name in checks}
