"""A limit to this process's memory, so that code which floods it costs its rollout, and not the run.

Without one the system ends the whole process when memory is full. With it the allocation fails, as a
``MemoryError`` in the code that asked for more.
"""

from __future__ import annotations

import os
import re
import resource
from math import nan
from pathlib import Path

from nightjar.errors import ConfigError

VARIABLE = "NIGHTJAR_MEMORY_LIMIT"
"""Gigabytes, such as ``8`` or ``0.5``; ``none`` for no limit. Nine tenths of what is free unless it is set."""

_FREE_SHARE = 0.9
_CGROUP = Path("/sys/fs/cgroup")
_GIGABYTE = 1e9
_MOST_GIGABYTES = 1e9


def limit_memory() -> None:
    """Limits what this process and its threads may allocate; children start with the same limit.

    Raises:
        ConfigError: the variable holds something else than a number.
    """
    if (wanted := _wanted_bytes()) is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _wanted_bytes() -> int | None:
    asked = os.environ.get(VARIABLE, "").strip().lower()
    if asked == "none":
        return None
    if not asked:
        free = _free_bytes()
        return None if free is None else int(free * _FREE_SHARE)
    try:
        gigabytes = float(asked)
    except ValueError:
        gigabytes = nan
    if not 0 < gigabytes < _MOST_GIGABYTES:
        raise ConfigError(f"{VARIABLE} must be gigabytes, such as 8, or 'none', found {asked!r}")
    return int(gigabytes * _GIGABYTE)


def _free_bytes() -> int | None:
    """Returns what is free on this machine, or in this container; None where the system does not say."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        return None
    free = [int(found[1]) * 1024] if found else []
    try:
        most, used = (int((_CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        free.append(most - used)
    except (OSError, ValueError):  # no container, or one without a limit
        pass
    return min(free, default=None)
