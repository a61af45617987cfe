"""Examines a warehouse, and mends what can be mended without run directories."""

from __future__ import annotations

from nightjar.warehouse.doctor.diagnosis import Diagnosis, diagnose
from nightjar.warehouse.doctor.findings import Finding
from nightjar.warehouse.doctor.fixing import Fixed, fix

__all__ = ["Diagnosis", "Finding", "Fixed", "diagnose", "fix"]
