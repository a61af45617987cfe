"""``nightjar demo``."""

from __future__ import annotations


def demo() -> None:
    """Run the main job on a local model server."""
