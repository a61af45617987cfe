"""``nightjar eval run``: one evaluation, from what was typed to the closing panel.

The flags of the configuration come from ``RunConfig``, see ``options``; those that are no field of it are here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nightjar.cli.eval.options import MODEL, RESULTS, flag_names, takes_flags
from nightjar.cli.warehouse import warehouse_option
from nightjar.config import PROVIDERS, RunConfig, find_provider, parameters, parse_run_config
from nightjar.errors import ConfigError
from nightjar.logs import log_to_stderr


def _option(*flags: str, panel: str = RESULTS, text: str, **kwargs: Any) -> Any:
    return typer.Option(*flags, help=text, rich_help_panel=panel, **kwargs)


@takes_flags()
def eval_run(
    fields: dict[str, Any],
    *,
    provider: Annotated[
        str | None,
        _option("--provider", "-p", panel=MODEL, text=f"Where the model is (default: prime): {', '.join(PROVIDERS)}."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        _option("--max-tokens", "-t", panel=MODEL, min=1, metavar="N", text="Tokens to generate at the most; -S wins."),
    ] = None,
    temperature: Annotated[
        float | None,
        _option("--temperature", "-T", panel=MODEL, min=0.0, metavar="N", text="Sampling temperature; -S wins."),
    ] = None,
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
    warehouse: Annotated[str | None, warehouse_option(RESULTS)] = None,
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
    limits = {"max_tokens": max_tokens, "temperature": temperature}
    sampling = {name: value for name, value in limits.items() if value is not None} | fields.get("sampling_args", {})
    values = _endpoint(provider) | fields | ({"sampling_args": sampling} if sampling else {})
    config = _config(values)
    log_to_stderr(verbose)
    if hosted:
        if direct or prefect or resume or output_dir:
            raise typer.BadParameter("--hosted excludes --direct, --prefect, --resume and --output-dir")
        run_hosted(config, values, deployment, warehouse=warehouse, prefect_url=prefect_url, as_json=as_json)
        return
    mode: Mode = "prefect" if prefect else "direct" if direct else "auto"
    outcome = run(config, mode, output_dir, resume, warehouse, prefect_url)
    finish(outcome, as_json)


def _endpoint(provider: str | None) -> dict[str, Any]:
    """Returns what a provider says of the endpoint; nothing where none was typed."""
    if provider is None:
        return {}
    try:
        known = find_provider(provider)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="'--provider' / '-p'") from error
    return {"base_url": known.base_url, "api_key_var": known.key_var, "api_client_type": known.client_type}


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
