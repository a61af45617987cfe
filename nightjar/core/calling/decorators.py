"""``@stop``, ``@cleanup``, ``@teardown``: methods that the engine finds and calls, by priority and then by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


def _marked(mark: str, func: F | None, priority: int) -> Any:
    if func is None:
        return partial(_marked, mark, priority=priority)
    setattr(func, mark, priority)
    return func


@overload
def stop(func: F, priority: int = 0) -> F: ...
@overload
def stop(func: None = None, priority: int = 0) -> Callable[[F], F]: ...
def stop(func: F | None = None, priority: int = 0) -> Any:
    """Marks a method of an environment as a stop condition. A rollout ends when the method returns True.

    The method may be sync or async. It is called before every turn, with those of ``state`` and ``env`` that its
    parameters name.

    Example:
        >>> from nightjar.environments import MultiTurnEnv
        >>> class TwentyQuestions(MultiTurnEnv):
        ...     async def env_response(self, messages, state):
        ...         state["is_guessed"] = "owl" in messages[-1]["content"]
        ...         return "It can fly."
        ...     @stop
        ...     async def is_guessed(self, state):
        ...         return state.get("is_guessed", False)
        ...     @stop(priority=10)
        ...     def was_given_up(self, state):
        ...         return any("I give up" in step["completion"][-1]["content"] for step in state["trajectory"])
        >>> env = TwentyQuestions(dataset=[{"question": "Which animal do I think of?"}])
        >>> [method.__name__ for method in decorated_methods(env, "stop_priority")][:3]
        ['has_error', 'was_given_up', 'has_final_env_response']
    """
    return _marked("stop_priority", func, priority)


@overload
def cleanup(func: F, priority: int = 0) -> F: ...
@overload
def cleanup(func: None = None, priority: int = 0) -> Callable[[F], F]: ...
def cleanup(func: F | None = None, priority: int = 0) -> Any:
    """Marks a sync or async method that runs at the end of every rollout, even if the rollout failed.

    An environment's methods run before scoring, and a rubric's methods run after scoring. All methods run, even if some
    raise.

    Example:
        >>> from nightjar.clients import ClientConfig
        >>> from nightjar.environments import SingleTurnEnv
        >>> from nightjar.model_server import FixedAnswer, ModelServer
        >>> class WithNotes(SingleTurnEnv):
        ...     async def setup_state(self, state):
        ...         state["notes"] = open("notes.txt", "w")
        ...     @cleanup
        ...     async def close_notes(self, state):
        ...         state["notes"].close()
        ...         print("closed")
        >>> env = WithNotes(dataset=[{"question": "What is worth noting?"}])
        >>> with ModelServer(FixedAnswer("The milk.")) as server:
        ...     results = env.evaluate_sync(ClientConfig(api_base_url=server.base_url), "local")
        closed
    """
    return _marked("cleanup_priority", func, priority)


@overload
def teardown(func: F, priority: int = 0) -> F: ...
@overload
def teardown(func: None = None, priority: int = 0) -> Callable[[F], F]: ...
def teardown(func: F | None = None, priority: int = 0) -> Any:
    """Marks a sync or async method of an environment or rubric that runs once, when the object is no longer needed.

    The method runs at the end of ``nightjar eval run``. After ``evaluate`` or ``generate``, it runs at the end of the
    process.

    Example:
        >>> import asyncio
        >>> from nightjar.environments import SingleTurnEnv, tear_down
        >>> class WithIndex(SingleTurnEnv):
        ...     @teardown
        ...     async def close_index(self):
        ...         print("closed")
        >>> asyncio.run(tear_down(WithIndex(dataset=[{"question": "Where is it?"}])))
        closed
    """
    return _marked("teardown_priority", func, priority)


def decorated_methods(owner: Any, mark: str) -> list[Callable[..., Any]]:
    """Returns the bound methods with a mark such as ``stop_priority``, in calling order."""
    kind: Any = type(owner)
    return [getattr(owner, name) for name in decorated_names(kind, mark)]


@lru_cache(maxsize=1024)
def decorated_names(kind: type[Any], mark: str) -> tuple[str, ...]:
    names = {name for parent in kind.__mro__ for name in vars(parent)}
    methods = {name: getattr(kind, name, None) for name in names}
    marked = [(-getattr(method, mark), name) for name, method in methods.items() if hasattr(method, mark)]
    return tuple(name for _, name in sorted(marked))
