"""``nightjar eval stop``: cancels a run; what it finished is kept and published.

nightjar eval stop 0a1b2c3d4e5f
"""

from __future__ import annotations

import time

from nightjar.cli.eval.arguments import HostedRunArgument, PrefectUrlOption, hosted_run, next_commands
from nightjar.cli.eval.following import record_of
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption
from nightjar.cli.warehouse.output import print_json
from nightjar.errors import ServiceError
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.custom_secrets import forget_secrets
from nightjar.hosting.hosted_runs import HostedRun, read_hosted_run

_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.5


def eval_stop(run: HostedRunArgument, prefect_url: PrefectUrlOption = None, as_json: JsonOption = False) -> None:
    """Cancel a run that a Prefect server knows; what it finished is kept and published.

    Example: nightjar eval stop 0a1b2c
    """
    api, found = hosted_run(run, prefect_url)
    said = f"Run {found.run_id} has ended already: {found.state}."
    if not found.is_ended:
        api.set_state(found.id, "CANCELLING", "nightjar eval stop")
        found = _ended(api, found)
        said = _said(found, prefect_url)
    if found.is_ended:
        forget_secrets(api, found)
    if as_json:
        print_json(record_of(found))
    else:
        echo(said)


def _ended(api: PrefectApi, run: HostedRun) -> HostedRun:
    """Waits until it has ended, for a minute at the most."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        now = read_hosted_run(api, run.id)
        if now is None:
            raise ServiceError(f"Run {run.run_id} was removed from the server")
        if now.is_ended or time.monotonic() > until:
            return now
        time.sleep(_LOOK_SECONDS)


def _said(run: HostedRun, prefect_url: str | None) -> str:
    if not run.is_ended:
        commands = next_commands(run.run_id, ("logs",), prefect_url)
        return f"Run {run.run_id} is told to stop and has not ended yet. Follow it: {commands}"
    what = "Cancelled" if run.state == "CANCELLED" else f"It ended before it could be cancelled: {run.state}"
    return "\n".join([f"{what}: run {run.run_id}, {run.name}.", *run.message.splitlines()])
