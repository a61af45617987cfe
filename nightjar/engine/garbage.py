"""How often Python looks for garbage while a run is under way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS_UNDER_WAY = 20_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Has Python look for garbage less often in this block, and not among what is loaded.

    A rollout's objects are freed when it ends, without that. As Python is set up, what is loaded would be walked
    through again and again (a fifth of a run's CPU), and so would what is under way (a tenth).
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(before[0], _OBJECTS_UNDER_WAY) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
