"""Calls user code, sync or async: reward functions, tools, hooks."""

from nightjar.calling.backoff import backoff_seconds
from nightjar.calling.functions import bound_names, call, call_named, function_name, is_async
from nightjar.calling.limits import OverdueError, within
from nightjar.calling.threads import leave_threads_behind, threads
from nightjar.calling.waiting import is_in_loop, run_sync

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
