"""``StateColumns``: the keys of the state that results keep besides their own, and whether the states have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nightjar.rollout.state import State

_OF_NO_USE = frozenset({"client", "input", "usage_tracker"})
_KEPT_ANYWAY = frozenset(
    {"advantage", "completion", "error", "is_completed", "is_truncated", "metrics", "model", "reward", "stop_condition"}
)
"""Keys of every state that results have in any case."""


class StateColumns:
    """Looks whether states have the columns that were asked for.

    Args:
        names: as they were asked for.

    Attributes:
        names: the same.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._missing = set(names)
        self._found: set[str] = set()

    def look_at(self, state: State, row: Mapping[str, Any]) -> None:
        """Takes note of what a state has, unless it failed, and its row of results."""
        if self._missing and state["error"] is None:
            self._found.update(state)
            self._missing = {name for name in self._missing if name not in state and row[name] is None}

    @property
    def unknown(self) -> list[str]:
        """Those that no state has had, in order; none before there was a state."""
        return sorted(self._missing) if self._found else []

    @property
    def choices(self) -> list[str]:
        """What the states have, in order, less what results have in any case."""
        return sorted(self._found - _OF_NO_USE - _KEPT_ANYWAY)
