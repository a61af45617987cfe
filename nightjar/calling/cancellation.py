"""Tells what user code raised from what ends the task that runs it."""

from __future__ import annotations

import asyncio
import traceback

from nightjar.errors import error_chain


def user_error(raised: BaseException) -> Exception:
    """Returns what environment or reward code raised as an ordinary error.

    ``sys.exit()`` in it, or a cancelled task that it waited for, must not end the run. Where this task is itself being
    cancelled, or somebody presses Ctrl-C, it is raised again.

    The local variables of the code that raised are given up: the error is kept until the rollout is recorded, and may
    be there because of what they hold.
    """
    for error in error_chain(raised):
        traceback.clear_frames(error.__traceback__)
    if isinstance(raised, Exception):
        return raised
    task = asyncio.current_task()
    if isinstance(raised, KeyboardInterrupt | GeneratorExit) or (task is not None and task.cancelling()):
        raise raised
    wrapped = RuntimeError(f"the code raised {type(raised).__name__}: {raised}")
    wrapped.__cause__ = raised
    return wrapped
