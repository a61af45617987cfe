"""Two outcomes of an evaluation, value by value."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ABSENT = "(absent)"
ANYTHING = "(anything)"
TOLERANCE = 1e-9
NOT_COMPARED = {"made_with": None, "message": None}


@dataclass(frozen=True)
class Found:
    path: str
    original: Any
    nightjar: Any

    def __str__(self):
        return f"{self.path}: original {self.original!r}, Nightjar {self.nightjar!r}"


def compare(original, nightjar):
    if ("raised" in original) != ("raised" in nightjar):
        return [Found("raised", original.get("raised", ABSENT), nightjar.get("raised", ABSENT))]
    one, other = (dict(leaves({**outcome, **NOT_COMPARED})) for outcome in (original, nightjar))
    paths = [*one, *(path for path in other if path not in one)]
    found = [Found(path, one.get(path, ABSENT), other.get(path, ABSENT)) for path in paths]
    return [
        difference
        for difference in found
        if not is_value(difference.original, difference.nightjar) and not is_emptied(difference, paths)
    ]


def is_emptied(found, paths):
    """Says whether only one side is empty here: what the other side has there is listed by itself."""
    return {str(found.original), str(found.nightjar)} <= {ABSENT, "{}", "[]"} and any(
        path.startswith(f"{found.path}.") for path in paths
    )


def leaves(value, path=""):
    """Yields every value of an outcome that holds no other, with its path."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items:
        yield path, value
    for key, item in items:
        yield from leaves(item, f"{path}.{key}" if path else str(key))


def is_value(found, wanted):
    if wanted == ANYTHING:
        return True
    if isinstance(found, int | float) and isinstance(wanted, int | float):
        return abs(found - wanted) <= TOLERANCE
    return found == wanted


def read_outcome(folder, case):
    """Returns what a run wrote of a case, files of its environment included."""
    outcome = json.loads(Path(folder, f"{case}.json").read_text())
    written = sorted(Path(folder, case).glob("*"))
    return outcome | ({"files": {path.name: path.read_text() for path in written}} if written else {})
