"""``nightjar eval run --dry-run``: the configuration of a run, and its expected tokens and cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.output import print_labelled, shown
from nightjar.cli.terminal import echo
from nightjar.clients.credentials import NO_KEY, resolve_api_key
from nightjar.core.text import counted
from nightjar.environments.packages.lookup import ALL_EXAMPLES
from nightjar.errors import ConfigError
from nightjar.evaluation import Estimate, check_environments, check_tasks, estimate
from nightjar.evaluation.config import Evaluation, RunConfig
from nightjar.warehouse import Warehouse, resolve_warehouse


def show_plans(
    evaluations: Sequence[Evaluation], warehouse: str | None, *, as_json: bool, is_suite: bool, is_hosted: bool
) -> None:
    configs = [evaluation.config for evaluation in evaluations]
    check_environments(configs)
    if not is_hosted:  # a worker may have packages that are missing here
        check_tasks(configs)
    house = Warehouse(resolve_warehouse(warehouse))
    plans = [(evaluation, estimate(evaluation.config, house)) for evaluation in evaluations]
    if as_json:
        records = [_record(*plan) for plan in plans]
        echo(json.dumps(records if is_suite else records[0], indent=2))
        return
    for plan in plans:
        _show(*plan)
    if is_suite:
        _show_total([expected for _, expected in plans])
    echo("Dry run: no model was called, and nothing was written.")


def _record(evaluation: Evaluation, expected: Estimate) -> dict[str, Any]:
    return {
        "name": evaluation.label,
        "config": evaluation.config.model_dump(mode="json"),
        "sources": evaluation.shown_sources,
        "files": {source: str(path) for source, path in evaluation.files.items()},
        **asdict(expected),
    }


def _show(evaluation: Evaluation, expected: Estimate) -> None:
    config = evaluation.config
    table = Table(box=None, pad_edge=False, title=Text(evaluation.label, style="bold"), title_justify="left")
    table.add_column("Field", no_wrap=True)
    table.add_column("Value", overflow="fold")
    table.add_column("From", no_wrap=True)
    sources = evaluation.shown_sources
    for name, value in config.model_dump(mode="json").items():
        if value not in (None, [], {}, ""):
            table.add_row(name, Text(shown(value)), sources[name])
    Console(markup=False, emoji=False).print(table)
    print_labelled(
        {
            "Rollouts": _rollouts(config, expected),
            "Tokens": _tokens(expected),
            "Cost": _cost(expected),
            "Key": _key(config),
        }
    )
    echo()


def _rollouts(config: RunConfig, expected: Estimate) -> str:
    each = config.rollouts_per_example
    if config.num_examples != ALL_EXAMPLES:
        examples = counted(config.num_examples, "example")
        return f"{expected.rollouts:,} ({examples} × {each}, or fewer if the dataset is smaller)"
    known = "" if expected.rollouts is None else f"{expected.rollouts:,} "
    return f"{known}(all examples × {each})"


def _tokens(expected: Estimate) -> str:
    if expected.input_tokens is None or expected.output_tokens is None:
        return "unknown: the warehouse has no earlier run of this environment and model"
    amounts = f"about {expected.input_tokens:,.0f} in, {expected.output_tokens:,.0f} out"
    return f"{amounts} (from {counted(expected.earlier_runs, 'earlier run')})"


def _key(config: RunConfig) -> str:
    try:
        is_set = resolve_api_key(config.client_config()) != NO_KEY
    except ConfigError as error:
        return str(error)
    return f"{config.api_key_var} is {'set' if is_set else 'not set; this endpoint needs no key'}"


def _cost(expected: Estimate) -> str:
    if expected.cost is None:
        return "unknown" + (": the model has no price" if expected.input_tokens is not None else "")
    return f"about {expected.cost:,.4f} USD"


def _show_total(expected: Sequence[Estimate]) -> None:
    rollouts = sum(each.rollouts or 0 for each in expected)
    costs = [each.cost for each in expected if each.cost is not None]
    known = f"about {sum(costs):,.4f} USD" if costs else "cost unknown"
    rest = len(expected) - len(costs)
    without = f"; the cost of {rest} of {len(expected)} is unknown" if costs and rest else ""
    echo(f"All:      {counted(rollouts, 'rollout')}, {known}{without}")
