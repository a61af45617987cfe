"""Budgets of runs, and estimates of their cost."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nightjar.core.environment_id import EnvironmentId
from nightjar.engine import Budget
from nightjar.engine.limits import Prices, shared_budget
from nightjar.environments.packages.lookup import ALL_EXAMPLES
from nightjar.errors import ConfigError, WarehouseError
from nightjar.evaluation.config import RunConfig
from nightjar.warehouse import Warehouse
from nightjar.warehouse.warehouse import model_price

logger = logging.getLogger(__name__)

_HISTORY = """
SELECT
    count(*),
    sum(input_tokens) / sum(scored),
    sum(output_tokens) / sum(scored),
    max(num_examples)
FROM runs
WHERE env_id = $env_id AND model = $model AND scored > 0 AND input_tokens IS NOT NULL
"""


@dataclass(frozen=True)
class Estimate:
    """The expected tokens and cost of a run, estimated from ``earlier_runs`` runs. None means unknown."""

    earlier_runs: int
    rollouts: int | None
    input_tokens: float | None
    output_tokens: float | None
    cost: float | None


def estimate(config: RunConfig, warehouse: Warehouse) -> Estimate:
    asked = {"env_id": EnvironmentId.parse(config.env_id).without_version, "model": config.model}
    try:
        earlier, tokens_in, tokens_out, most = warehouse.query(_HISTORY, asked).rows[0]
    except WarehouseError:  # the warehouse is missing or unreachable; the run itself reports that
        earlier, tokens_in, tokens_out, most = 0, None, None, None
    examples = most if config.num_examples == ALL_EXAMPLES else config.num_examples
    rollouts = None if examples is None else examples * config.rollouts_per_example
    if rollouts is None or not earlier:
        return Estimate(earlier, rollouts, None, None, None)
    prices = prices_of(config, warehouse)
    cost = rollouts * (tokens_in * prices[0] + tokens_out * prices[1]) / 1e6 if prices else None
    return Estimate(earlier, rollouts, rollouts * tokens_in, rollouts * tokens_out, cost)


def prices_of(config: RunConfig, warehouse: Warehouse) -> Prices | None:
    """Returns the price of a million input and output tokens of a run's model; None if unknown."""
    price = model_price(warehouse, config.model)
    if price is None and (config.input_price, config.output_price) != (None, None):
        return config.input_price or 0.0, config.output_price or 0.0
    return price


def cost_of(metadata: Mapping[str, Any], warehouse: Warehouse) -> float | None:
    """Returns the cost of a run's recorded rollouts, None without a price; a rescored run costs nothing."""
    if metadata.get("rescored_from"):
        return 0.0
    usage, model = metadata.get("usage"), metadata.get("model")
    if not usage or not model or not metadata.get("started_at"):
        return None
    prices = _price_at(str(metadata["started_at"]), model, warehouse)
    if prices is None:
        return None
    return float(usage.get("input_tokens", 0) * prices[0] + usage.get("output_tokens", 0) * prices[1]) / 1e6


def _price_at(moment: str, model: str, warehouse: Warehouse) -> Prices | None:
    try:
        prices = [one for one in warehouse.store().prices() if one.model == model and one.since <= _moment(moment)]
    except WarehouseError:  # it has tables instead of a file of prices
        return model_price(warehouse, model)
    newest = max(prices, key=lambda one: one.since, default=None)
    return None if newest is None else (newest.input, newest.output)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@contextmanager
def within_budget(configs: Sequence[RunConfig], warehouse: Warehouse) -> Iterator[None]:
    """Limits the total cost and tokens of all runs started in this block to the budget of the first configuration."""
    tokens, cost = configs[0].max_total_tokens, configs[0].max_cost_usd
    if (part := configs[0].part_of_run) is not None:
        tokens, cost = tokens and max(1, tokens // part.count), cost and cost / part.count
    if shared_budget.get() is not None or (tokens is None and cost is None):
        yield
        return
    known = {config.model: prices_of(config, warehouse) for config in configs}

    def prices_of_any(model: str) -> Prices | None:
        if model not in known:  # a judge's
            known[model] = prices_of(RunConfig(env_id="any", model=model or "any"), warehouse)
            if known[model] is None:
                logger.warning("The price of model %r is not known: its cost is not counted", model)
        return known[model]

    if cost is not None and (unknown := [model for model, prices in known.items() if prices is None]):
        raise ConfigError(
            f"max_cost_usd: the price of model {unknown[0]!r} is not known. Set it in USD per million tokens: "
            f"nightjar warehouse prices set {unknown[0]} --input PRICE --output PRICE"
        )
    before = shared_budget.set(Budget(tokens, cost, prices_of_any))
    try:
        yield
    finally:
        shared_budget.reset(before)
