"""``nightjar nights``: the results of suites, night by night."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from nightjar.analysis.judging import beside, find_night
from nightjar.cli.options import JsonOption, WarehouseOption, argument, option
from nightjar.cli.output import columns, print_json
from nightjar.cli.terminal import echo
from nightjar.core.text import counted, harmless
from nightjar.errors import ConfigError, ServiceError, WarehouseError
from nightjar.evaluation.nights import end_night, judged_now
from nightjar.hosting.hosted_runs import with_flow_run_states
from nightjar.hosting.server import ENDED, PrefectApi, find_prefect_api
from nightjar.reports.nights import change_of, how_to_complete, number, reward_of, why
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.storage.records import Night, checked_night

_UNSETTLED = ("running", "incomplete")
_STYLES = {"worse": "red", "incomplete": "yellow", "crashed": "red", "accepted": "green"}


def _date(text: str) -> str:
    try:
        return checked_night(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


_SuiteArgument = Annotated[str, argument("Name of the suite: its file name without .toml.", metavar="SUITE")]
_NightArgument = Annotated[str, argument("Date of the night, such as 2026-01-31.", metavar="DATE", callback=_date)]


def nights(
    context: typer.Context,
    suite: Annotated[str | None, option("Only nights of this suite.", metavar="NAME")] = None,
    limit: Annotated[int, option("Maximum number of nights to list.", "--limit", "-n", min=1, metavar="N")] = 30,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the nights of suites, newest first, with their verdict and cost.

    Examples: nightjar nights --suite nightly | nightjar nights show nightly 2026-11-20
    """
    if context.invoked_subcommand is not None:
        return
    place = Warehouse(resolve_warehouse(warehouse))
    found = [night for night in place.nights() if suite in {None, night.suite}]
    newest = sorted(found, key=lambda night: (night.night, night.suite), reverse=True)[:limit]
    shown = with_flow_run_states([judged_now(place, each) if each.verdict in _UNSETTLED else each for each in newest])
    if as_json:
        print_json(shown)
        return
    _print_nights(shown)
    if len(found) > limit:
        echo(f"The newest {limit} of {len(found)} nights; --limit shows more.", err=True)
    nothing = "There are no nights. Schedule them: nightjar deploy SUITE.toml --cron '0 2 * * *'"
    echo("Next: nightjar nights show SUITE DATE" if found else nothing, err=True)


def nights_show(
    suite: _SuiteArgument, night: _NightArgument, warehouse: WarehouseOption = None, as_json: JsonOption = False
) -> None:
    """Show each evaluation of a night beside the last accepted night, and how to complete missing evaluations.

    Example: nightjar nights show nightly 2026-11-20
    """
    place = Warehouse(resolve_warehouse(warehouse))
    found = judged_now(place, _find(place, suite, night))
    if as_json:
        print_json(found)
        return
    echo(harmless(found.line))
    _print_night(found)
    for one in found.evaluations:
        if one.status != "completed" and found.verdict != "running":
            echo(harmless(f"{one.name}: {why(one)}. To complete it: {how_to_complete(found, one)}"))


def nights_accept(
    suite: _SuiteArgument, night: _NightArgument, warehouse: WarehouseOption = None, as_json: JsonOption = False
) -> None:
    """Accept a night, whatever its results are, so that later nights are compared with this night.

    Example: nightjar nights accept nightly 2026-11-20
    """
    _judge(suite, night, warehouse, as_json=as_json, is_accepted=True)


def nights_judge(
    suite: _SuiteArgument, night: _NightArgument, warehouse: WarehouseOption = None, as_json: JsonOption = False
) -> None:
    """Judge a night again by the runs that are published now.

    A night that was accepted by hand stays accepted.

    Example: nightjar nights judge nightly 2026-11-20
    """
    _judge(suite, night, warehouse, as_json=as_json, is_accepted=False)


def _judge(suite: str, night: str, warehouse: str | None, *, as_json: bool, is_accepted: bool) -> None:
    place = Warehouse(resolve_warehouse(warehouse))
    found = _find(place, suite, night)
    judged = end_night(place, replace(found, is_accepted_by_hand=is_accepted or found.is_accepted_by_hand))
    with suppress(ServiceError):  # only its pages show the state
        _show_accepted(judged)
    if as_json:
        print_json(judged)
    else:
        echo(harmless(judged.line))


def _show_accepted(night: Night) -> None:
    """Marks the flow run of a night that was accepted by hand as Completed."""
    if night.is_accepted_by_hand and night.flow_run_id and (api_url := find_prefect_api()):
        api = PrefectApi(api_url)
        found = api.get(f"/flow_runs/{night.flow_run_id}")
        if found is not None and found["state_type"] in ENDED - {"COMPLETED"}:
            api.set_state(night.flow_run_id, "COMPLETED", night.line, is_forced=True)


def _find(warehouse: Warehouse, suite: str, night: str) -> Night:
    known = warehouse.nights()
    found = find_night(known, suite.removesuffix(".toml"), night)
    if found is None:
        suites = ", ".join(sorted({one.suite for one in known})) or "none"
        raise WarehouseError(f"There is no night {night} of suite {suite!r}. Suites with nights: {suites}")
    return found


def _print_nights(shown: Sequence[Night]) -> None:
    headings = ("Night", "Suite", "Verdict", "Complete", "Cost", "Result")
    rows = []
    for one in shown:
        complete = sum(each.status == "completed" for each in one.evaluations)
        verdict = Text(one.verdict, style=_STYLES.get(one.verdict, ""))
        result = one.line.removeprefix(f"{one.suite} {one.night} {one.verdict}: ")
        cost = "–" if one.cost is None else f"{one.cost:.4g}"
        rows.append((one.night, one.suite, verdict, f"{complete}/{len(one.evaluations)}", cost, result))
    Console().print(columns(headings, rows, numbers=("Complete", "Cost"), folded=("Result",)))


def _print_night(night: Night) -> None:
    headings = ("Evaluation", "Reward", "Scored", "Change", "Beside", "Cost", "Status")
    rows = []
    for one in night.evaluations:
        scored = f"{one.scored}/{one.rollouts}" if one.rollouts else "–"
        against = f"{beside(one).removeprefix('on ')}, {counted(one.pairs, 'example')}" if one.against_night else "–"
        cells = (reward_of(one), scored, change_of(one), against, number(one.cost))
        rows.append((one.name, *cells, one.status or "no run"))
    Console().print(columns(headings, rows, numbers=headings[1:-1], folded=headings[:-1]))
