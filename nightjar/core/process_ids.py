"""Where process ids are valid: on a machine, or in one container."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def process_namespace() -> str:
    """Returns a word that differs between a machine and each of its containers, or "" where there are no containers."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""
