"""Writes some runs of a warehouse into files to hand on."""

from __future__ import annotations

from nightjar.warehouse.export.exporting import ExportFormat, ExportReport, export, format_of
from nightjar.warehouse.export.runs import Selection

__all__ = ["ExportFormat", "ExportReport", "Selection", "export", "format_of"]
