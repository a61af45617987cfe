"""Whether the runs of this process may have sandboxes: hosted runs only where that was asked for.

It keeps environments from what nobody wanted them to have, and is no wall around their code, which runs as the worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nightjar.sandboxes.sandbox import SandboxNotAllowedError

_FLAG = "--allow-sandbox-access"
_runs_without: list[object] = []


@contextmanager
def sandbox_access(*, is_allowed: bool) -> Iterator[None]:
    """Lets nothing in this process make a sandbox while the block lasts, unless it is allowed."""
    if is_allowed:
        yield
        return
    run = object()
    _runs_without.append(run)
    try:
        yield
    finally:
        _runs_without.remove(run)


def check_sandbox_access() -> None:
    """Makes sure that a sandbox may be made.

    Raises:
        SandboxNotAllowedError: the run is hosted and was not allowed to.
    """
    if _runs_without:
        raise SandboxNotAllowedError(
            f"The environment asks for a sandbox, and this run may have none. Allow it: {_FLAG} beside --hosted, or "
            "'allow_sandbox_access' in the form"
        )
