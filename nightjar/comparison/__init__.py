"""Runs beside runs, over the examples that both have scored."""

from __future__ import annotations

from nightjar.comparison.judging import judge_night
from nightjar.comparison.pairs import Paired, pair_runs

__all__ = ["Paired", "judge_night", "pair_runs"]
