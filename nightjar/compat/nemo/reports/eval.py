"""A table of bundles in five formats; ``nightjar eval report`` also has samples and failures."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nightjar.compat.nemo.engine.artifacts import bundle_paths
from nightjar.compat.nemo.reports import render_json
from nightjar.importers.reading import read_object
from nightjar.reports.evaluation import latex, rendering
from nightjar.reports.formats import text_table
from nightjar.reports.html import render

_HEAD = ("benchmark", "model", "samples", "repeats")
_NO_SCORES = frozenset({"summary", "breakdowns", "runtime", "failures", "errors", "coverage"})


def discover_bundle_paths(paths: Iterable[str | Path]) -> list[Path]:
    return list(dict.fromkeys(bundle for path in paths for bundle in bundle_paths(Path(path))))


def load_bundles(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    return [read_object(path) for path in discover_bundle_paths(paths)]


def build_table(bundles: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a table with one row per bundle; a score ``s`` has its interval in ``s_ci_lower`` and ``s_ci_upper``."""
    rows = [_row(bundle) for bundle in bundles]
    return {"columns": list(dict.fromkeys(name for row in rows for name in row)), "rows": rows}


def render_markdown(table: Mapping[str, Any], **_: Any) -> str:
    names, rows = _cells(table)
    return text_table(names, rows) + "\n"


def render_latex(table: Mapping[str, Any], **_: Any) -> str:
    names, rows = _cells(table)
    columns = "P{38mm}P{44mm}" + "r" * (len(names) - 2)
    return latex.document([latex.table(names, rows, columns)])


def render_csv(table: Mapping[str, Any], **_: Any) -> str:
    """Returns a table as CSV; a cell that begins like a formula is escaped with ``'``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([rendering.csv_cell(name) for name in table["columns"]])
    writer.writerows([rendering.csv_cell(row.get(name)) for name in table["columns"]] for row in table["rows"])
    return stream.getvalue()


def render_html(table: Mapping[str, Any], **_: Any) -> str:
    names, rows = _cells(table)
    return render("table.html", title="Evaluations", names=names, rows=rows)


RENDERERS: dict[str, Callable[..., str]] = {
    "markdown": render_markdown,
    "html": render_html,
    "latex": render_latex,
    "csv": render_csv,
    "json": render_json,
}


def _row(bundle: Mapping[str, Any]) -> dict[str, Any]:
    benchmark, config = bundle.get("benchmark") or {}, bundle.get("config") or {}
    scores = benchmark.get("scores") or {}
    row = {
        **{name: benchmark.get(name) for name in _HEAD},
        "benchmark": benchmark.get("name"),
        "model": config.get("model"),
    }
    for name, score in scores.items():
        if name not in _NO_SCORES and isinstance(score, Mapping):
            ends = {f"{name}_{end}": score.get(end) for end in ("ci_lower", "ci_upper")}
            row |= {name: score.get("value"), **ends}
    for name in ("coverage", "errors"):
        row[name] = (scores.get(name) or {}).get("value")
    runtime = scores.get("runtime") or {}
    latency = (runtime.get("latency_percentiles_ms") or {}).get("p50")
    return row | {"total_tokens": runtime.get("total_tokens"), "latency_p50_ms": latency}


def _cells(table: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    ends = {f"{name}_{end}" for name in table["columns"] for end in ("ci_lower", "ci_upper")}
    names = [name for name in table["columns"] if name not in ends]
    return names, [[_cell(row, name) for name in names] for row in table["rows"]]


def _cell(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    low, high = row.get(f"{name}_ci_lower"), row.get(f"{name}_ci_upper")
    between = "" if low is None or high is None else f" [{low:.4f}, {high:.4f}]"
    return _text(value) + between


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
