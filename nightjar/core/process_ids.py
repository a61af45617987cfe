"""Where process ids are valid: on a machine, or in one container."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

_OF_MACHINE = "4026531836"
"""The number of Linux for the process ids of the machine itself. Each running container has another number."""


@cache
def process_host() -> str:
    """Returns the host name, followed by a number in a container, which may have the host name of its machine."""
    name = socket.gethostname()
    with suppress(OSError):
        number = "".join(re.findall(r"\d+", str(Path("/proc/self/ns/pid").readlink())))
        return name if number == _OF_MACHINE else f"{name}.{number}"
    return name
