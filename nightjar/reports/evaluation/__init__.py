"""A report on runs: one record as Markdown, CSV, JSON, LaTeX, and (in ``nightjar.view.exporting``) HTML."""

from collections.abc import Callable, Mapping

from nightjar.reports.evaluation.gathering import Report, RunReport, Sample, gather, report_run
from nightjar.reports.evaluation.latex import render_latex
from nightjar.reports.evaluation.rendering import render_csv, render_json, render_markdown

RENDERERS: Mapping[str, Callable[[Report], str]] = {
    "markdown": render_markdown,
    "csv": render_csv,
    "json": render_json,
    "latex": render_latex,
}

__all__ = ["RENDERERS", "Report", "RunReport", "Sample", "gather", "render_csv", "render_json", "report_run"]
