"""``nightjar eval run --hosted``: submits runs to a worker, and prints where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import typer

from nightjar.cli.eval.hosted import next_commands
from nightjar.cli.output import print_json, print_labelled
from nightjar.cli.terminal import echo
from nightjar.errors import ServiceError
from nightjar.evaluation.config import Evaluation
from nightjar.evaluation.config.suite import BUDGETS
from nightjar.hosting.server import find_prefect_api
from nightjar.hosting.submitting import HostedOptions, Submitted, check_options, submit, submit_parts

POLL_SECONDS = 10.0
_DEPLOYMENT = "evaluate/evaluate"


def check_hosted_flags(is_hosted: bool, hosted_only: Mapping[str, Any], local_only: Mapping[str, Any]) -> None:
    """Refuses flags of local runs for a hosted run, and the other way round; an empty value was not given."""
    wrong = [flag for flag, value in (local_only if is_hosted else hosted_only).items() if value]
    if wrong:
        reason = "not for a hosted run" if is_hosted else "only for a hosted run: add --hosted"
        raise typer.BadParameter(f"{', '.join(wrong)}: {reason}")


def submit_all(
    evaluations: Sequence[Evaluation],
    options: HostedOptions,
    deployment: str | None,
    warehouse: str | None,
    prefect_url: str | None,
    shards: int | None = None,
) -> list[Submitted]:
    """Submits a run for each evaluation, or for each part of a single evaluation.

    Args:
        evaluations: to run; fields that are not set have the deployment's values.
        options: for every run.
        deployment: ``flow/deployment``; None for the default.
        warehouse: its location; None for the deployment's.
        prefect_url: of the server; None for the configured server, or that of 'nightjar up'.
        shards: number of parts; None for a run that is not divided.

    Raises:
        ConfigError: an environment cannot be sent, or an option is not available there.
        ServiceError: there is no server, or it refuses.
    """
    if len(evaluations) > 1 and (budgets := [name for name in BUDGETS if getattr(evaluations[0].config, name)]):
        raise typer.BadParameter(f"{' and '.join(budgets)}: hosted runs are separate processes and share no budget")
    api_url = find_prefect_api(prefect_url)
    if api_url is None:
        raise ServiceError("There is no Prefect server to submit the run to. Start one here: nightjar up --detach")
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
    """Returns the name of the flow run; empty for the default name."""
    if is_alone or not given:
        return given
    return f"{given} | {evaluation.label}"


def show_submitted(submitted: Sequence[Submitted], prefect_url: str | None, *, as_json: bool, is_suite: bool) -> None:
    """Prints the submitted runs, and the next commands."""
    if as_json:
        print_json([asdict(each) for each in submitted] if is_suite else asdict(submitted[0]))
        return
    for each in submitted:
        print_labelled(
            {
                "Submitted": f"{each.name} to {each.deployment}",
                "Run": f"{each.run_id} (flow run {each.flow_run_id})",
                "Environment": each.env_source,
                "Prefect": each.page,
                "Next": "" if is_suite else next_commands(each.run_id, ("logs", "get", "stop"), prefect_url),
            }
        )
    if is_suite:
        echo("Next:        nightjar eval list")
