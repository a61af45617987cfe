"""Evaluations: the five stages of a run, and direct mode, which orders them in this process."""

from nightjar.evaluation.direct import Outcome, evaluate, run_shards
from nightjar.evaluation.plan import Shard
from nightjar.evaluation.run import Run, new_run_id, watcher

__all__ = ["Outcome", "Run", "Shard", "evaluate", "new_run_id", "run_shards", "watcher"]
