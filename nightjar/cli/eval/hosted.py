"""``nightjar eval run --hosted``: hands the run to a worker, and says where it is."""

from __future__ import annotations

from collections.abc import Sequence

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse.output import print_json
from nightjar.config import RunConfig
from nightjar.errors import ServiceError
from nightjar.hosting.server import find_prefect_api
from nightjar.hosting.submitting import Submitted, submit, submit_parts


def run_hosted(
    config: RunConfig,
    deployment: str,
    *,
    warehouse: str | None,
    prefect_url: str | None,
    as_json: bool,
    shards: int | None = None,
) -> None:
    """Hands a run to the worker of a deployment.

    Args:
        config: what to run; for fields that are not set the deployment's values hold.
        deployment: ``flow/deployment``.
        warehouse: its location; None for the deployment's.
        prefect_url: of Prefect's server; None for the one that is configured, or that 'nightjar up' runs.
        as_json: print JSON.
        shards: hand it over in so many parts; None for the whole.

    Raises:
        ConfigError: the environment cannot be sent.
        ServiceError: there is no server, or it refuses.
    """
    api_url = find_prefect_api(prefect_url)
    if api_url is None:
        raise ServiceError("There is no Prefect server to hand the run to. Start one here: nightjar up --detach")
    if shards:
        _show_parts(
            submit_parts(config, shards, deployment=deployment, api_url=api_url, warehouse=warehouse or ""), as_json
        )
        return
    submitted = submit(config, deployment=deployment, api_url=api_url, warehouse=warehouse or "")
    if as_json:
        print_json(submitted)
        return
    echo(f"Submitted:   {submitted.name} ({submitted.flow_run_id}) to {deployment}")
    if submitted.env_source:
        echo(f"Environment: {submitted.env_source}")
    echo(f"Prefect:     {submitted.page}")


def _show_parts(parts: Sequence[Submitted], as_json: bool) -> None:
    if as_json:
        print_json(parts)
        return
    for each in parts:
        echo(f"Submitted:   {each.name} ({each.flow_run_id}) to {each.deployment}")
    echo(f"Run:         {parts[0].run_id}, when all parts have ended: nightjar eval get {parts[0].run_id}")
