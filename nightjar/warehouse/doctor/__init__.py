"""Examines a warehouse, and mends what can be mended without run directories."""

from __future__ import annotations

from nightjar.warehouse.doctor.diagnosis import Diagnosis, Finding, diagnose, fix

__all__ = ["Diagnosis", "Finding", "diagnose", "fix"]
