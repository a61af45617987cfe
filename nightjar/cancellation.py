"""Tells what user code raised from what ends the task that runs it."""

from __future__ import annotations

import asyncio


def user_error(raised: BaseException) -> Exception:
    """Returns what environment or reward code raised as an ordinary error.

    ``sys.exit()`` in it, or a cancelled task that it waited for, must not end the run. Where this task is itself being
    cancelled, or somebody presses Ctrl-C, it is raised again.
    """
    if isinstance(raised, Exception):
        return raised
    task = asyncio.current_task()
    if isinstance(raised, KeyboardInterrupt | GeneratorExit) or (task is not None and task.cancelling()):
        raise raised
    error = RuntimeError(f"the code raised {type(raised).__name__}: {raised}")
    error.__cause__ = raised
    return error
