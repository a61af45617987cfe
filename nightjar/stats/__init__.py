"""Statistics of evaluations: pure functions of numbers."""

from nightjar.stats.estimates import Estimate, clustered_mean
from nightjar.stats.passk import pass_all_k, pass_at_k, pass_curves

__all__ = ["Estimate", "clustered_mean", "pass_all_k", "pass_at_k", "pass_curves"]
