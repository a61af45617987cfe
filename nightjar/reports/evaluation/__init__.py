"""A report on runs, to share: one record, rendered as Markdown, CSV, JSON and LaTeX.

:mod:`nightjar.view.exporting` renders the HTML page of the same record, with the templates of pages.
"""

from collections.abc import Callable, Mapping

from nightjar.reports.evaluation.gathering import Report, RunReport, Sample, gather
from nightjar.reports.evaluation.latex import render_latex
from nightjar.reports.evaluation.rendering import render_csv, render_json, render_markdown

RENDERERS: Mapping[str, Callable[[Report], str]] = {
    "markdown": render_markdown,
    "csv": render_csv,
    "json": render_json,
    "latex": render_latex,
}

__all__ = ["RENDERERS", "Report", "RunReport", "Sample", "gather", "render_csv", "render_json"]
