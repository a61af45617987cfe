"""``nightjar eval run --dry-run``: what a run would be, and what it can be expected to take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.terminal import echo
from nightjar.clients.credentials import NO_KEY, resolve_api_key
from nightjar.config import ALL_EXAMPLES, Evaluation, RunConfig
from nightjar.errors import ConfigError
from nightjar.evaluation import Estimate, check_environments, estimate
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse


def show_plans(evaluations: Sequence[Evaluation], warehouse: str | None, *, as_json: bool, is_suite: bool) -> None:
    """Prints for each evaluation where its values come from, its rollouts, tokens and cost.

    Args:
        evaluations: what would be run.
        warehouse: whose history is reckoned with; None for the default.
        as_json: print JSON; an array of a suite.
        is_suite: of a suite, or of several environments.
    """
    check_environments([evaluation.config for evaluation in evaluations])
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
    echo("Dry run: nothing was asked of a model, and nothing written.")


def _record(evaluation: Evaluation, expected: Estimate) -> dict[str, Any]:
    return {
        "name": evaluation.label,
        "config": evaluation.config.model_dump(mode="json"),
        "sources": dict(evaluation.sources),
        **asdict(expected),
    }


def _show(evaluation: Evaluation, expected: Estimate) -> None:
    config = evaluation.config
    table = Table(box=None, pad_edge=False, title=Text(evaluation.label, style="bold"), title_justify="left")
    table.add_column("Field", no_wrap=True)
    table.add_column("Value", overflow="fold")
    table.add_column("From", no_wrap=True)
    for name, value in config.model_dump(mode="json").items():
        if value not in (None, [], {}, ""):
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            table.add_row(name, Text(harmless(shown)), evaluation.sources[name])
    Console(markup=False, emoji=False).print(table)
    for label, text in (
        ("Rollouts", _rollouts(config, expected)),
        ("Tokens", _tokens(expected)),
        ("Cost", _cost(expected)),
        ("Key", _key(config)),
    ):
        echo(f"{label + ':':<10}{text}")
    echo()


def _rollouts(config: RunConfig, expected: Estimate) -> str:
    each = config.rollouts_per_example
    if config.num_examples != ALL_EXAMPLES:
        return f"{expected.rollouts:,} ({config.num_examples:,} examples × {each}, where there are as many)"
    known = "" if expected.rollouts is None else f"{expected.rollouts:,} "
    return f"{known}(all examples × {each})"


def _tokens(expected: Estimate) -> str:
    if expected.input_tokens is None or expected.output_tokens is None:
        return "not known: no history of this environment and model in the warehouse"
    runs = "run" if expected.earlier_runs == 1 else "runs"
    amounts = f"about {expected.input_tokens:,.0f} in, {expected.output_tokens:,.0f} out"
    return f"{amounts} (from {expected.earlier_runs} earlier {runs})"


def _key(config: RunConfig) -> str:
    try:
        is_set = resolve_api_key(config.client_config()) != NO_KEY
    except ConfigError as error:
        return str(error)
    return f"{config.api_key_var} is {'set' if is_set else 'not set, and this endpoint needs none'}"


def _cost(expected: Estimate) -> str:
    if expected.cost is None:
        return "not known" + (": the model has no price" if expected.input_tokens is not None else "")
    return f"about {expected.cost:,.4f} USD"


def _show_total(expected: Sequence[Estimate]) -> None:
    rollouts = sum(each.rollouts or 0 for each in expected)
    costs = [each.cost for each in expected if each.cost is not None]
    known = f"about {sum(costs):,.4f} USD" if costs else "cost not known"
    rest = len(expected) - len(costs)
    echo(
        f"All:      {rollouts:,} rollouts, {known}" + (f", without {rest} of {len(expected)}" if costs and rest else "")
    )
