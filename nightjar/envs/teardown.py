"""The end of environments: what they hold open is closed at the end of a run, or when the process ends."""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from nightjar.calling import call_named
from nightjar.calling.decorators import decorated_methods
from nightjar.envs.rollouts import RunnableEnvironment
from nightjar.rubrics.handlers import run_all

logger = logging.getLogger(__name__)

_in_use: list[RunnableEnvironment] = []


async def tear_down(env: RunnableEnvironment) -> None:
    """Runs the ``@teardown`` methods of an environment's rubric, and its own. One that fails is logged.

    A function, and no method, because environments call their own methods ``teardown``.

    Example:
        >>> from nightjar.envs import SingleTurnEnv
        >>> asyncio.run(tear_down(SingleTurnEnv(dataset=[{"question": "2+2?"}])))
    """
    _in_use[:] = [other for other in _in_use if other is not env]
    handlers = decorated_methods(env, "teardown_priority")
    calls: dict[str, Callable[[], Awaitable[Any]]] = {"of the rubric": env.rubric.teardown}
    calls |= {handler.__name__: partial(call_named, handler, env=env) for handler in handlers}
    for name, tear in calls.items():
        try:
            await run_all([tear], getattr(env, "hook_timeout_seconds", None))
        except Exception:
            logger.exception("The teardown %s of environment %r failed", name, env.env_id)


def tear_down_at_exit(env: RunnableEnvironment) -> None:
    """Has an environment torn down when the process ends, unless that is done before: it may be used again until then.

    Example:
        >>> from nightjar.envs import SingleTurnEnv
        >>> tear_down_at_exit(SingleTurnEnv(dataset=[{"question": "2+2?"}]))
    """
    if not any(other is env for other in _in_use):
        _in_use.append(env)


@atexit.register
def _tear_all_down() -> None:
    while _in_use:
        asyncio.run(tear_down(_in_use[0]))
