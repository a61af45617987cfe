"""Examines a warehouse, and sets aside what is damaged: its runs are published again from their run directories."""

from __future__ import annotations

from nightjar.warehouse.doctor.diagnosis import Diagnosis, Finding, diagnose
from nightjar.warehouse.doctor.mending import Fixed, fix

__all__ = ["Diagnosis", "Finding", "Fixed", "diagnose", "fix"]
