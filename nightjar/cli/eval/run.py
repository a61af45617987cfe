"""``nightjar eval run``: one evaluation, from what was typed to the closing panel.

The flags of the configuration come from ``RunConfig``, see ``options``; those that are no field of it are here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nightjar.cli.eval.options import OUTPUT, flag_names, takes_flags
from nightjar.cli.warehouse import warehouse_option
from nightjar.config import RunConfig, parameters, parse_run_config
from nightjar.config.named_headers import name_values
from nightjar.errors import ConfigError
from nightjar.logs import log_to_stderr


def _option(*flags: str, text: str, **kwargs: Any) -> Any:
    return typer.Option(*flags, help=text, rich_help_panel=OUTPUT, **kwargs)


@takes_flags()
def eval_run(
    fields: dict[str, Any],
    *,
    save_results: Annotated[  # noqa: ARG001 - results are always saved
        bool, _option("--save-results", "-s", text="Accepted for compatibility: results are always saved.")
    ] = False,
    resume: Annotated[
        str | None,
        _option(
            "--resume",
            "-R",
            metavar="[PATH]",
            text="Go on with a run: a run directory, or without PATH the newest run of these settings that is not "
            "complete.",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None, _option("--output-dir", "-o", text="Folder of run directories (default: ./outputs).")
    ] = None,
    warehouse: Annotated[str | None, warehouse_option(OUTPUT)] = None,
    direct: Annotated[bool, _option("--direct", text="Run in this process, without Prefect.")] = False,
    prefect: Annotated[
        bool, _option("--prefect", text="Run as a Prefect flow, with a temporary server where there is none.")
    ] = False,
    prefect_url: Annotated[
        str | None,
        _option(
            "--prefect-url",
            metavar="URL",
            text="Prefect's server (default: PREFECT_API_URL, Prefect's active profile, or that of 'nightjar up').",
        ),
    ] = None,
    hosted: Annotated[
        bool, _option("--hosted", text="Hand the run, with its environment, to the worker of a deployment.")
    ] = False,
    deployment: Annotated[
        str, _option("--deployment", metavar="FLOW/NAME", text="The deployment that a hosted run is of.")
    ] = "evaluate/evaluate",
    as_json: Annotated[bool, _option("--json", text="Print the outcome as JSON.")] = False,
    verbose: Annotated[bool, _option("--verbose", "-v", text="Log more.")] = False,
) -> None:
    """Evaluate a model in an environment.

    The run appears in the Prefect UI when a Prefect server is configured, or 'nightjar up' runs one, and runs in
    this process otherwise. Every finished model call is on disk at once: an
    interrupted run goes on with --resume and asks nothing twice.
    """
    from nightjar.cli.eval.hosted import run_hosted
    from nightjar.cli.eval.running import Mode, finish, run

    if direct and (prefect or prefect_url):
        raise typer.BadParameter(f"--direct and --prefect{'-url' if prefect_url else ''} exclude each other")
    if "headers" in fields and not hosted:  # where the run happens, no variable of this process is known
        fields["headers"] = name_values(fields["headers"])
    config = _config(fields)
    log_to_stderr(verbose)
    if hosted:
        if direct or prefect or resume or output_dir:
            raise typer.BadParameter("--hosted excludes --direct, --prefect, --resume and --output-dir")
        run_hosted(config, deployment, warehouse=warehouse, prefect_url=prefect_url, as_json=as_json)
        return
    mode: Mode = "prefect" if prefect else "direct" if direct else "auto"
    outcome = run(config, mode, output_dir, resume, warehouse, prefect_url)
    finish(outcome, as_json)


def _config(values: dict[str, Any]) -> RunConfig:
    """Returns the configuration; what no environment, endpoint or file has to do with is wrong usage."""
    try:
        return parse_run_config(values)
    except ConfigError as error:
        if type(error) is not ConfigError:  # one of its kinds: the environment is broken
            raise
        name, _, message = str(error).partition(": ")
        hint = " / ".join(f"'{flag}'" for flag in flag_names(name, parameters()[name]))
        raise typer.BadParameter(message, param_hint=hint) from error
