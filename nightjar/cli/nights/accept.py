"""``nightjar nights accept`` and ``nightjar nights judge``: a verdict that somebody gives, or has worked out again.

nightjar nights accept nightly 2026-11-20
"""

from __future__ import annotations

from dataclasses import replace

from nightjar.cli.nights.arguments import NightArgument, SuiteArgument, night_of
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.evaluation.nights import end_night
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse


def nights_accept(
    suite: SuiteArgument, night: NightArgument, warehouse: WarehouseOption = None, as_json: JsonOption = False
) -> None:
    """Accept a night, whatever it came to: the nights after it are compared with it.

    Example: nightjar nights accept nightly 2026-11-20
    """
    _judge(suite, night, warehouse, as_json=as_json, is_accepted=True)


def nights_judge(
    suite: SuiteArgument, night: NightArgument, warehouse: WarehouseOption = None, as_json: JsonOption = False
) -> None:
    """Work out again what a night came to, from its runs that are published now.

    One that was accepted by hand stays accepted.

    Example: nightjar nights judge nightly 2026-11-20
    """
    _judge(suite, night, warehouse, as_json=as_json, is_accepted=False)


def _judge(suite: str, night: str, warehouse: str | None, *, as_json: bool, is_accepted: bool) -> None:
    place = Warehouse(resolve_warehouse(warehouse))
    found = night_of(place, suite, night)
    judged = end_night(place, replace(found, is_accepted_by_hand=is_accepted or found.is_accepted_by_hand))
    if as_json:
        print_json(judged)
    else:
        echo(harmless(judged.line))
