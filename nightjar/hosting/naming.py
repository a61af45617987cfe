"""What the flows, their deployments and the work pool are called on a Prefect server."""

from __future__ import annotations

FLOWS = ("evaluate", "query", "benchmark", "retry-failed", "rescore", "publish-run", "prune", "upkeep", "gate")
"""The names of the flows."""

POOL = "nightjar"
"""The name of the work pool."""


def prefixed(name: str, prefix: str) -> str:
    """Returns a name of somebody's own: of a deployment or a work pool, for ``--name-prefix``."""
    return f"{prefix}-{name}" if prefix else name
