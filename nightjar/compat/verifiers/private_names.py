"""Private methods of verifiers that environments and tests call. The alias adds them to Nightjar's classes.

They only read: a handler that is appended to one of the lists is not called.
"""

from __future__ import annotations

from typing import Any

from nightjar.core.calling import call_named
from nightjar.core.calling.decorators import decorated_methods
from nightjar.environments import Environment
from nightjar.environments.rollouts import tear_down
from nightjar.environments.rubrics import Rubric


def add_private_names() -> None:
    """Adds the names. A second call changes nothing."""
    for kind, names in ((Rubric, _RUBRIC), (Environment, _ENVIRONMENT)):
        for name, value in names.items():
            setattr(kind, name, value)


def _get_reward_func_names(self: Any) -> list[str]:
    return [getattr(func, "__name__", repr(func)) for func in self.funcs]


async def _render_stop(self: Any, state: Any, condition: Any, **kwargs: Any) -> bool:
    if not await call_named(condition, state=state, env=self, **kwargs):
        return False
    self._complete(state, condition.__name__)
    if state.get("error") is not None:
        message = f"The rollout stopped at {condition.__name__} with {state['error']!r}"
        self.logger.error(message)
    return True


def _decorated(mark: str) -> property:
    return property(lambda self: decorated_methods(self, mark))


_RUBRIC = {
    "_get_reward_func_names": _get_reward_func_names,
    "_get_reward_funcs": lambda self: list(self.funcs),
    "_get_reward_weights": lambda self: list(self.weights),
}
_ENVIRONMENT = {
    "_stop_conditions": _decorated("stop_priority"),
    "_cleanup_handlers": _decorated("cleanup_priority"),
    "_teardown_handlers": _decorated("teardown_priority"),
    "_teardown": tear_down,
    "_render_stop": _render_stop,
}
