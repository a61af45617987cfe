"""The engine: what happens to groups and rollouts between being owed and being recorded."""

from nightjar.clients.failures import Failure, classify
from nightjar.engine.budget import Budget
from nightjar.engine.engine import Engine, EngineOptions, Group, GroupQueue, Recorder, Rollouts, run_groups
from nightjar.engine.plan import Finished, Plan, Shard
from nightjar.engine.progress import Progress
from nightjar.engine.retry import RetryPolicy
from nightjar.engine.run import Run, runs_under_way
from nightjar.engine.tasks import seldom_collected, task_group

__all__ = [
    "Budget",
    "Engine",
    "EngineOptions",
    "Failure",
    "Finished",
    "Group",
    "GroupQueue",
    "Plan",
    "Progress",
    "Recorder",
    "RetryPolicy",
    "Rollouts",
    "Run",
    "Shard",
    "classify",
    "run_groups",
    "runs_under_way",
    "seldom_collected",
    "task_group",
]
