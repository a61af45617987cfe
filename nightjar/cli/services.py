"""``nightjar up`` and ``nightjar down``."""

from __future__ import annotations


def up() -> None:
    """Start the local Prefect server, a worker and the deployments."""


def down() -> None:
    """Stop what 'nightjar up --detach' started."""
