"""``nightjar eval run --hosted``: hands runs to a worker, and says where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import typer

from nightjar.cli.eval.arguments import next_commands
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse.output import print_json
from nightjar.config import Evaluation
from nightjar.config.suite import BUDGETS
from nightjar.errors import ServiceError
from nightjar.hosting.server import find_prefect_api
from nightjar.hosting.submitting import HostedOptions, Submitted, check_options, submit, submit_parts

POLL_SECONDS = 10.0
_DEPLOYMENT = "evaluate/evaluate"


def check_hosted_flags(is_hosted: bool, of_hosted: Mapping[str, Any], of_local: Mapping[str, Any]) -> None:
    """Makes sure that flags of hosted runs and of others do not go together; what was typed is not empty."""
    wrong = [flag for flag, value in (of_local if is_hosted else of_hosted).items() if value]
    if wrong:
        reason = "not of a hosted run" if is_hosted else "of a hosted run: add --hosted"
        raise typer.BadParameter(f"{', '.join(wrong)}: {reason}")


def submit_all(
    evaluations: Sequence[Evaluation],
    options: HostedOptions,
    deployment: str | None,
    warehouse: str | None,
    prefect_url: str | None,
    shards: int | None = None,
) -> list[Submitted]:
    """Hands runs to the worker of a deployment, one for each evaluation, or for each part of one.

    Args:
        evaluations: what to run; for fields that are not set the deployment's values hold.
        options: what is said of each besides.
        deployment: ``flow/deployment``; None for the usual one.
        warehouse: its location; None for the deployment's.
        prefect_url: of Prefect's server; None for the one that is configured, or that 'nightjar up' runs.
        shards: hand the evaluation over in so many parts; None for the whole.

    Raises:
        ConfigError: an environment cannot be sent, or what is asked for is not to be had.
        ServiceError: there is no server, or it refuses.
    """
    if len(evaluations) > 1 and (said := [name for name in BUDGETS if getattr(evaluations[0].config, name)]):
        raise typer.BadParameter(f"{' and '.join(said)}: hosted runs are processes of their own and share no budget")
    api_url = find_prefect_api(prefect_url)
    if api_url is None:
        raise ServiceError("There is no Prefect server to hand the run to. Start one here: nightjar up --detach")
    chosen = deployment or _DEPLOYMENT
    for each in evaluations:
        check_options(each.config, options, deployment=chosen, api_url=api_url)
    where: Any = {"deployment": chosen, "api_url": api_url, "warehouse": warehouse or ""}
    if shards:
        return submit_parts(evaluations[0].config, shards, **where, options=options)
    return [
        submit(
            each.config,
            **where,
            options=replace(options, name=_name(each, options.name, is_alone=len(evaluations) == 1)),
        )
        for each in evaluations
    ]


def _name(evaluation: Evaluation, given: str, *, is_alone: bool) -> str:
    """Returns what its flow run is called; empty for the usual name."""
    if is_alone or not given:
        return given
    return f"{given} | {evaluation.label}"


def show_submitted(submitted: Sequence[Submitted], prefect_url: str | None, *, as_json: bool, is_suite: bool) -> None:
    """Prints what was handed over, and the commands to type next."""
    if as_json:
        print_json([asdict(each) for each in submitted] if is_suite else asdict(submitted[0]))
        return
    for each in submitted:
        echo(f"Submitted:   {each.name} to {each.deployment}")
        echo(f"Run:         {each.run_id} (flow run {each.flow_run_id})")
        if each.env_source:
            echo(f"Environment: {each.env_source}")
        echo(f"Prefect:     {each.page}")
        if not is_suite:
            echo(f"Next:        {next_commands(each.run_id, ('logs', 'get', 'stop'), prefect_url)}")
    if is_suite:
        echo("Next:        nightjar eval list")
