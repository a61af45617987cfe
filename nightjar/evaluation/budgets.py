"""What runs may spend: a budget for one run, or for all of a suite together."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nightjar.config import RunConfig
from nightjar.engine import Budget
from nightjar.engine.budget import Prices, shared_budget
from nightjar.errors import ConfigError
from nightjar.evaluation.estimate import prices_of
from nightjar.warehouse import Warehouse

logger = logging.getLogger(__name__)


@contextmanager
def within_budget(configs: Sequence[RunConfig], warehouse: Warehouse) -> Iterator[None]:
    """Has all runs that are started in the block spend no more together than the first says; else it does nothing.

    In a block of this kind another one changes nothing. A part of a run may spend its share.

    Raises:
        ConfigError: the cost is limited, and the price of a model is not known.
    """
    tokens, cost = configs[0].max_total_tokens, configs[0].max_cost_usd
    if (part := configs[0].part_of_run) is not None:
        tokens, cost = tokens and max(1, tokens // part.count), cost and cost / part.count
    if shared_budget.get() is not None or (tokens is None and cost is None):
        yield
        return
    known = {config.model: prices_of(config, warehouse) for config in configs}
    if cost is not None and (unknown := [model for model, prices in known.items() if prices is None]):
        raise ConfigError(
            f"max_cost_usd: the price of model {unknown[0]!r} is not known. Set it, for a million tokens: "
            f"nightjar warehouse prices set {unknown[0]} --input PRICE --output PRICE"
        )
    before = shared_budget.set(Budget(tokens, cost, _Known(known, warehouse)))
    try:
        yield
    finally:
        shared_budget.reset(before)


class _Known:
    """The prices of the models of runs, and of their judges as these come."""

    def __init__(self, known: dict[str, Prices | None], warehouse: Warehouse) -> None:
        self._known = known
        self._warehouse = warehouse

    def __call__(self, model: str) -> Prices | None:
        if model not in self._known:
            self._known[model] = prices_of(RunConfig(env_id="any", model=model or "any"), self._warehouse)
            if self._known[model] is None:
                logger.warning("The price of model %r is not known: what it costs is not counted", model)
        return self._known[model]
