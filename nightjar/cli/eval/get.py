"""``nightjar eval get``: what a run is, how it stands, and what it came to.

nightjar eval get 0a1b2c3d4e5f
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.cli.eval.arguments import RunArgument
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.evaluation.failures import recorded_failures
from nightjar.evaluation.stored_runs import StoredRun, find_stored_run
from nightjar.terminal import harmless

_LABEL_WIDTH = 13


def eval_get(run: RunArgument, warehouse: WarehouseOption = None, as_json: JsonOption = False) -> None:
    """Show what a run is, how it stands, and what it came to.

    Example: nightjar eval get 0a1b2c
    """
    found = find_stored_run(run, warehouse=warehouse)
    if as_json:
        print_json(found.metadata | {"path": found.path and str(found.path)})
        return
    for label, text in _lines(found).items():
        if text:
            echo(f"{label + ':':<{_LABEL_WIDTH}}{harmless(str(text))}")
    echo(f"Next: nightjar eval samples {found.run_id} | nightjar eval view-config {found.run_id}", err=True)


def _lines(run: StoredRun) -> dict[str, Any]:
    told = run.metadata
    return {
        "Run": f"{run.run_id}, {told['status']}",
        "Environment": " ".join(filter(None, (told["env_id"], told.get("env_version")))),
        "Arguments": _pairs(told.get("env_args")),
        "Model": told["model"],
        "Endpoint": told.get("base_url"),
        "Sampling": _pairs(told.get("sampling_args")),
        "Rescored": told.get("rescored_from") and f"from run {told['rescored_from']}",
        "Started": _moment(told.get("started_at")),
        "Finished": _moment(told.get("finished_at")),
        "Runtime": told.get("time_ms") is not None and f"{told['time_ms'] / 1000:,.1f} s",
        "Rollouts": f"{told['num_examples']} examples × {told['rollouts_per_example']} = {told['rollouts']}",
        **(_results(told) if "scored" in told else {}),
        "Tags": ", ".join(told.get("tags") or ()),
        "Suite": told.get("suite"),
        "Published": _moment(told.get("published_at")) or (run.path is None and run.warehouse.location),
        "Results": run.path,
    }


def _results(told: Mapping[str, Any]) -> dict[str, Any]:
    reward, error = told["avg_reward"], told.get("stderr")
    examples = told.get("error_examples") or {}
    return {
        "Scored": f"{told['scored']}, {told['failed']} failed",
        "Avg reward": reward is not None and f"{reward:.4f}" + ("" if error is None else f" ± {error:.4f}"),
        "Metrics": _numbers(told.get("avg_metrics")),
        "pass@k": _numbers(told.get("pass_at_k")),
        "pass^k": _numbers(told.get("pass_all_k")),
        "Tokens": told.get("usage") and ", ".join(f"{count:,.0f} {name}" for name, count in told["usage"].items()),
        "Stopped by": ", ".join(f"{name} ({count})" for name, count in (told.get("stop_conditions") or {}).items()),
        "Errors": f"\n{' ' * _LABEL_WIDTH}".join(
            f"{count} × {chain}: {examples.get(chain, '').partition(chr(10))[0]}"
            for chain, count in (told.get("errors") or {}).items()
        ),
        "To do": f"\n{' ' * _LABEL_WIDTH}".join(f"{kind}: {kind.advice}" for kind in recorded_failures(told)),
    }


def _pairs(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in (values or {}).items())


def _numbers(values: Mapping[str, float] | None) -> str:
    return "  ".join(f"{name}: {value:.4g}" for name, value in (values or {}).items())


def _moment(written: str | None) -> str:
    return f"{written[:19].replace('T', ' ')} UTC" if written else ""
