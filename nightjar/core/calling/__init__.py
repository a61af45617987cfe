"""Calls user code, sync or async: reward functions, tools, hooks."""

from nightjar.core.calling.functions import bound_names, call, call_named, function_name, is_async
from nightjar.core.calling.limits import OverdueError, backoff_seconds, within
from nightjar.core.calling.threads import is_in_loop, leave_threads_behind, run_sync, threads

__all__ = [
    "OverdueError",
    "backoff_seconds",
    "bound_names",
    "call",
    "call_named",
    "function_name",
    "is_async",
    "is_in_loop",
    "leave_threads_behind",
    "run_sync",
    "threads",
    "within",
]
