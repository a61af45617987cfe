"""``nightjar env install``: environment packages into this Python.

nightjar env install my-env ./other/env owner/name@1.2.0
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from nightjar.cli.terminal import echo
from nightjar.logs import log_to_stderr
from nightjar.packages import Installation, InstallOptions, install


def env_install(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH|NAME[@VERSION]",
            help="A project folder, an environment in --path, or a name in the package index; owner/ may come before.",
            show_default=False,
        ),
    ],
    path: Annotated[Path, typer.Option("--path", "-p", help="Folder where names are looked for first.")] = Path(
        "environments"
    ),
    editable: Annotated[
        bool,
        typer.Option("--editable/--no-editable", "-e", help="Install folders so that changes take effect at once."),
    ] = True,
    upgrade: Annotated[bool, typer.Option("--upgrade", "-U", help="Replace what is installed by the newest.")] = False,
    no_deps: Annotated[bool, typer.Option("--no-deps", help="Leave out what the environments depend on.")] = False,
    no_build_isolation: Annotated[
        bool, typer.Option("--no-build-isolation", help="Build with the tools that are installed; needs no network.")
    ] = False,
    index_url: Annotated[
        str | None, typer.Option(help="Package index (default: the one pip is configured with).", show_default=False)
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the installer's log.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Install environments with the pip of this Python (uv where there is no pip).

    'verifiers' is never installed for them: Nightjar stands in for it. Take one back with 'pip uninstall'.

    Examples: nightjar env install my-env | nightjar env install ./my-env --no-editable | nightjar env install a/my-env
    """
    log_to_stderr(verbose)
    options = InstallOptions(
        editable=editable,
        upgrade=upgrade,
        with_dependencies=not no_deps,
        build_isolation=not no_build_isolation,
        index_url=index_url,
        shows_log=verbose,
    )
    console = Console(stderr=True, highlight=False)
    if verbose or not console.is_terminal:
        installed = install(names, path, options)
    else:
        with console.status(f"Installing {', '.join(names)}"):
            installed = install(names, path, options)
    if as_json:
        echo(json.dumps([_record(one) for one in installed], indent=2))
        return
    for one in installed:
        echo(f"{one.package.env_id} {one.package.version} ({one.package.location})")
        if one.left_out:
            echo(f"Nightjar stands in for {', '.join(one.left_out)}: not installed.", err=True)
    echo(f"Next: nightjar eval run {installed[-1].package.env_id} -m gpt-4.1-mini -p openai", err=True)


def _record(one: Installation) -> dict[str, Any]:
    return {
        "asked": one.asked,
        "env_id": one.package.env_id,
        "version": one.package.version,
        "distribution": one.package.distribution,
        "module": str(one.package.module.path),
        "editable_from": None if one.package.editable_from is None else str(one.package.editable_from),
        "left_out": list(one.left_out),
    }
