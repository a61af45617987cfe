"""Removes the containers of a process that has ended: ``python -m nightjar.sandboxes.removal OWNER``."""

from __future__ import annotations

import sys
import time
from contextlib import closing, suppress

from nightjar.sandboxes.engine import connect
from nightjar.sandboxes.ownership import has_ended, remove_left

_PATIENCE_SECONDS = 50.0
_PAUSE_SECONDS = 2.0
_POLL_SECONDS = 0.2


def remove_all_of(owner: str) -> None:
    """Removes an owner's containers until none is left, because its last request may still create one.

    Does nothing if the owner does not end.
    """
    deadline, quiet = time.monotonic() + _PATIENCE_SECONDS, 0
    while not has_ended(owner):
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL_SECONDS)
    while time.monotonic() < deadline and quiet < 2:  # noqa: PLR2004 - twice in a row
        with suppress(Exception), closing(connect(timeout_seconds=20)) as client:
            quiet = 0 if remove_left(client, owner) else quiet + 1
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    remove_all_of(sys.argv[1])
