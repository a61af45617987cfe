"""Statistics of evaluations: pure functions of numbers. Each function names the source of its formula."""

from nightjar.statistics.estimates import Estimate, clustered_mean, pass_all_k, pass_at_k, pass_curves, pass_ks

__all__ = ["Estimate", "clustered_mean", "pass_all_k", "pass_at_k", "pass_curves", "pass_ks"]
