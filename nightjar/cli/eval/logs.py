"""``nightjar eval logs``: the log of a run, as its server has it.

nightjar eval logs 0a1b2c3d4e5f -f
"""

from __future__ import annotations

from typing import Annotated

import typer

from nightjar.cli.eval.arguments import HostedRunArgument, PrefectUrlOption, hosted_run, next_commands
from nightjar.cli.eval.following import end, follow, show_json, show_line
from nightjar.cli.terminal import echo
from nightjar.hosting.run_logs import RunLog


def eval_logs(
    run: HostedRunArgument,
    is_followed: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends; the exit code says how it ended.")
    ] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", min=0, metavar="N", help="So many of the last lines.")] = 1_000,
    poll_interval: Annotated[
        float,
        typer.Option("--poll-interval", min=0.1, metavar="SECONDS", help="How long to wait before looking again."),
    ] = 5.0,
    prefect_url: PrefectUrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Show the log of a run that a Prefect server knows.

    Examples: nightjar eval logs 0a1b2c | nightjar eval logs 0a1b2c -f --tail 20
    """
    api, found = hosted_run(run, prefect_url)
    log, show = RunLog(api, found.id), show_json if as_json else show_line
    lines = log.tail(tail)
    for line in lines:
        show(line)
    if is_followed:
        found = follow(api, found, log, show, poll_seconds=poll_interval, prefect_url=prefect_url)
        end(found, prefect_url, as_json=False)
    if not lines:
        echo(f"{found.state}: there is nothing in its log.", err=True)
    if not found.is_ended:
        echo(f"{found.state}: it goes on. Follow it: {next_commands(found.run_id, ('logs',), prefect_url)}", err=True)
