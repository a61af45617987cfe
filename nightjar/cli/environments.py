"""``nightjar env init``, ``env install`` and ``env list``: the environments that can be run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from nightjar.cli.data import data_of, whereabouts
from nightjar.cli.options import JsonListOption
from nightjar.cli.output import columns, print_json
from nightjar.cli.terminal import echo
from nightjar.core.logs import log_to_stderr
from nightjar.environments.packages.catalog import list_environments
from nightjar.environments.packages.installation import Installation, InstallOptions, install
from nightjar.environments.packages.package import EnvironmentPackage
from nightjar.environments.packages.scaffold import Kind, Scaffold, make_environment
from nightjar.environments.packages.scaffold import rewrite_readme as write_readme

_WIDE = 72
"""From this width on, a terminal has room for descriptions and licences beside the names."""


def env_init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="my-env or owner/my-env; the module is my_env.", show_default=False)
    ],
    path: Annotated[Path, typer.Option("--path", "-p", help="Folder to create it in.")] = Path("environments"),
    kind: Annotated[
        Literal["single-turn", "multi-turn", "tool"],
        typer.Option(help="What it starts as: one answer, several attempts, or a tool to call."),
    ] = "single-turn",
    multi_file: Annotated[bool, typer.Option("--multi-file", help="A package folder instead of one module.")] = False,
    rewrite_readme: Annotated[
        bool,
        typer.Option("--rewrite-readme", help="If the environment exists, only write its README.md anew."),
    ] = False,
) -> None:
    """Create an environment package with code, tests, README.md and pyproject.toml, as a starting point for your own.

    Its tests pass and it runs unchanged, also against 'nightjar model-server'. No file is overwritten.

    Examples: nightjar env init my-env | nightjar env init my-env --kind multi-turn --multi-file
    """
    made = write_readme(name, path, kind=Kind(kind)) if rewrite_readme else None
    made = made or make_environment(name, path, kind=Kind(kind), is_multi_file=multi_file)
    for written in made.paths:
        echo(written)
    echo(f"Environment {made.env_id}: {kind}. {_next_commands(made, path)}", err=True)


def _next_commands(made: Scaffold, path: Path) -> str:
    folder = shlex.quote(str(made.folder))
    where = "" if path == Path("environments") else f" --env-dir-path {shlex.quote(str(path))}"
    return (
        f"Next:\n  python -m pytest {folder}\n  nightjar model-server --port 8000 &\n"
        f"  nightjar eval run {made.env_id} -m local -b http://127.0.0.1:8000/v1{where}"
    )


def env_install(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH|NAME[@VERSION]",
            help="A project folder, an environment in --path, or a name in the package index, with or without owner/.",
            show_default=False,
        ),
    ],
    path: Annotated[Path, typer.Option("--path", "-p", help="Folder in which names are looked up first.")] = Path(
        "environments"
    ),
    editable: Annotated[
        bool,
        typer.Option("--editable/--no-editable", "-e", help="Install folders so that changes take effect at once."),
    ] = True,
    upgrade: Annotated[bool, typer.Option("--upgrade", "-U", help="Upgrade to the newest version.")] = False,
    no_deps: Annotated[bool, typer.Option("--no-deps", help="Do not install dependencies.")] = False,
    no_build_isolation: Annotated[
        bool, typer.Option("--no-build-isolation", help="Build with the installed tools; needs no network.")
    ] = False,
    index_url: Annotated[
        str | None, typer.Option(help="Package index (default: the one pip is configured with).", show_default=False)
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the installer's log.")] = False,
    as_json: JsonListOption = False,
) -> None:
    """Install environments with the pip of this Python (uv where there is no pip).

    'verifiers' is never installed as their dependency: Nightjar replaces it. To uninstall: pip uninstall.

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
        print_json([_installation_record(one) for one in installed])
        return
    for one in installed:
        echo(f"{one.package.env_id} {one.package.version} ({one.package.location})")
        if one.left_out:
            echo(f"Nightjar stands in for {', '.join(one.left_out)}: not installed.", err=True)
    echo(f"Next: nightjar eval run {installed[-1].package.env_id} -m gpt-4.1-mini -p openai", err=True)


def _installation_record(one: Installation) -> dict[str, Any]:
    return {
        "asked": one.asked,
        "env_id": one.package.env_id,
        "version": one.package.version,
        "distribution": one.package.distribution,
        "module": str(one.package.module.path),
        "editable_from": None if one.package.editable_from is None else str(one.package.editable_from),
        "left_out": list(one.left_out),
    }


def env_list(
    path: Annotated[Path, typer.Option("--path", "-p", help="Folder of the environments developed here.")] = Path(
        "environments"
    ),
    source: Annotated[
        Literal["all", "builtin", "local", "installed", "lm-eval", "skills"],
        typer.Option(
            "--source",
            "-s",
            help="Only environments from this source; lm-eval: tasks of EleutherAI's harness; skills: NeMo Skills.",
        ),
    ] = "all",
    data_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder with the datasets of NeMo Skills.", show_default=False)
    ] = None,
    as_json: JsonListOption = False,
) -> None:
    """List the environments: built-in with the state of their data, in ./environments, and installed.

    An installed package is listed if it depends on nightjar-evals or verifiers and its module has a
    load_environment(); its code is not run. Gated data requires the consent of its authors first.

    Examples: nightjar env list | nightjar env list --json | nightjar list --source skills --data-dir datasets
    """
    if source == "lm-eval":
        _show_lm_eval_tasks(as_json=as_json)
        return
    if source == "skills":
        _show_skills(data_dir, as_json=as_json)
        return
    packages = [each for each in list_environments(path) if source in {"all", each.origin.replace("-", "")}]
    if as_json:
        print_json([_package_record(package) for package in packages])
        return
    benchmarks = [package for package in packages if package.origin == "built-in"]
    others = [package for package in packages if package.origin != "built-in"]
    if benchmarks:
        _print_benchmarks(benchmarks)
    if others or not benchmarks:
        rows = [(each.env_id, each.version or "", _origin(each), each.description) for each in others]
        Console().print(_table(("Environment", "Version", "From", "Description"), rows, folded=("From", "Description")))
    echo("Next: nightjar eval run NAME, data get NAME, env validate NAME, env init NAME", err=True)


def _show_lm_eval_tasks(*, as_json: bool) -> None:
    from nightjar.compat.nemo.environments.lm_eval_task import list_tasks

    names = [f"lm-eval://{name}" for name in list_tasks()]
    echo(json.dumps([{"env_id": name} for name in names], indent=2) if as_json else "\n".join(names))
    echo("Next: nightjar eval run lm-eval://TASK", err=True)


def _show_skills(data_dir: Path | None, *, as_json: bool) -> None:
    from nightjar.compat.nemo.environments.skills import list_skills_benchmarks

    found = [{"env_id": f"skills://{each['benchmark']}", **each} for each in list_skills_benchmarks(data_dir)]
    if as_json:
        print_json(found)
        return
    rows = [(each["env_id"], each["metrics_type"], ", ".join(each["splits"])) for each in found]
    Console().print(_table(("Environment", "Metrics", "Splits"), rows, folded=("Metrics", "Splits")))
    echo("Next: nightjar eval run skills://NAME", err=True)


def _package_record(package: EnvironmentPackage) -> dict[str, Any]:
    return {
        "env_id": package.env_id,
        "version": package.version,
        "origin": package.origin,
        "location": package.location,
        "module": str(package.module.path),
        "description": package.description,
        "tags": list(package.tags),
        "distribution": package.distribution,
        "installed_version": package.installed_version,
        **(_data_record(package) if package.origin == "built-in" else {}),
    }


def _data_record(package: EnvironmentPackage) -> dict[str, Any]:
    data = data_of(package)
    return {
        "num_examples": data and data.num_examples,
        "data_license": data and data.license,
        "data": whereabouts(data),
        "data_files": [str(path) for path in data.paths()] if data else [],
    }


def _print_benchmarks(packages: Sequence[EnvironmentPackage]) -> None:
    console = Console()
    headings: tuple[str, ...] = ("Benchmark", "Description", "Examples", "Licence", "Data")
    rows: list[tuple[str, ...]] = []
    for package in packages:
        data = data_of(package)
        size = f"{data.num_examples:,}" if data and data.num_examples else ""
        description = package.description.partition(": ")[2] or package.description
        rows.append((package.env_id, description, size, data.license if data else "", whereabouts(data)))
    if console.width < _WIDE:
        headings, rows = headings[::2], [row[::2] for row in rows]
    console.print(_table(headings, rows, numbers=("Examples",), folded=("Description",)))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, folded: Sequence[str], **options: Any) -> Table:
    """Returns a table whose first column, which users type, is never cut, however narrow the terminal is."""
    table = columns(headings, rows, folded=folded, **{"numbers": (), **options})
    table.columns[0].min_width = max((len(row[0]) for row in rows), default=0)
    return table


def _origin(package: EnvironmentPackage) -> str:
    if package.origin == "local" and package.installed_version is not None:
        return f"{package.location} (installed: {package.installed_version})"
    return package.location
