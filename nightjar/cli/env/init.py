"""``nightjar env init``: a new environment package that runs as it is.

nightjar env init my-env --kind tool
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from nightjar.cli.terminal import echo
from nightjar.packages import Kind, Scaffold, make_environment
from nightjar.packages import rewrite_readme as write_readme


def env_init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="my-env or owner/my-env; the module is my_env.", show_default=False)
    ],
    path: Annotated[Path, typer.Option("--path", "-p", help="Folder to make it in.")] = Path("environments"),
    kind: Annotated[
        Literal["single-turn", "multi-turn", "tool"],
        typer.Option(help="What it does to begin with: one answer, several tries, or a tool to call."),
    ] = "single-turn",
    multi_file: Annotated[bool, typer.Option("--multi-file", help="A package folder instead of one module.")] = False,
    rewrite_readme: Annotated[
        bool,
        typer.Option("--rewrite-readme", help="Where it is there already, write its README.md anew, nothing else."),
    ] = False,
) -> None:
    """Make an environment package: code, tests, README.md and pyproject.toml, to be changed into what you need.

    It passes its tests and runs as it is, against 'nightjar model-server' too. Nothing is overwritten.

    Examples: nightjar env init my-env | nightjar env init my-env --kind multi-turn --multi-file
    """
    made = write_readme(name, path, kind=Kind(kind)) if rewrite_readme else None
    made = made or make_environment(name, path, kind=Kind(kind), is_multi_file=multi_file)
    for written in made.paths:
        echo(written)
    echo(f"Environment {made.env_id}: {kind}. {_next(made, path)}", err=True)


def _next(made: Scaffold, path: Path) -> str:
    folder = shlex.quote(str(made.folder))
    where = "" if path == Path("environments") else f" --env-dir-path {shlex.quote(str(path))}"
    return (
        f"Next:\n  python -m pytest {folder}\n  nightjar model-server --port 8000 &\n"
        f"  nightjar eval run {made.env_id} -m local -b http://127.0.0.1:8000/v1{where}"
    )
