"""The reference of Python: the public names of ``nightjar``, from their signatures and docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "nightjar"
_IMPORT = re.compile(r"^from \.([\w.]*) import \w+ as (\w+)$", re.MULTILINE)
_PAGES = {
    "runs": ("Runs and results", "evaluate, open and compare runs from Python", ("api",)),
    "environments": (
        "Environments",
        "write environments, rubrics, parsers and tools",
        ("environments", "core.calling"),
    ),
    "rollouts": ("Rollouts and messages", "read and make messages, rollouts and their states", ("core",)),
    "endpoints": ("Endpoints", "make clients of endpoints", ("clients", "evaluation")),
    "errors": ("Errors", "catch the errors that Nightjar raises", ("errors",)),
    "verifiers": ("Names of verifiers", "use the configuration classes of verifiers 0.1", ("compat",)),
}
"""The pages: title, what the reader can do, and the packages whose names the page has."""
_STUBS = {
    "flows": "start Nightjar's flows from your own code",
    "tasks": "call Nightjar's Prefect tasks in your own flows",
}


def pages() -> Iterator[tuple[str, str]]:
    remaining = _IMPORT.findall((PACKAGE / "__init__.pyi").read_text("utf-8"))
    for name, (title, task, packages) in _PAGES.items():
        own = [each for each in remaining if any(is_inside(each[0], package) for package in packages)]
        remaining = [each for each in remaining if each not in own]
        yield f"python/{name}.md", _page(title, task, "nightjar", own)
    assert not remaining, f"no page of the Python reference has {remaining}"
    for name, task in _STUBS.items():
        found = _IMPORT.findall((PACKAGE / name / "__init__.pyi").read_text("utf-8"))
        yield f"python/{name}.md", _page(name.capitalize(), task, f"nightjar.{name}", found)


def is_inside(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _page(title: str, task: str, package: str, found: list[tuple[str, str]]) -> str:
    intro = f"After this page, you can {task}. Import each name from `{package}`."
    return "\n\n".join([f"# {title}", intro, *(f"::: {package}.{name}" for _, name in found)])
