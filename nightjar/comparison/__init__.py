"""Runs beside runs, over the examples that they have scored, too."""

from __future__ import annotations

from nightjar.comparison.judging import judge_night
from nightjar.comparison.pairs import Compared, compare_run

__all__ = ["Compared", "compare_run", "judge_night"]
