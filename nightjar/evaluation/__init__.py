"""Evaluations: a run of an environment, from its configuration to the warehouse; direct mode orders its stages."""

from nightjar.engine import Run, Shard
from nightjar.evaluation.direct import evaluate
from nightjar.evaluation.loading import load_env
from nightjar.evaluation.outcome import Outcome
from nightjar.evaluation.publishing import check_warehouse, publish
from nightjar.evaluation.stopping import stopped_by_signals

__all__ = ["Outcome", "Run", "Shard", "check_warehouse", "evaluate", "load_env", "publish", "stopped_by_signals"]
