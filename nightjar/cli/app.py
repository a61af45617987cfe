"""All commands in one tree. Slow imports happen inside the commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from nightjar import __version__
from nightjar.cli.demo import demo
from nightjar.cli.env.init import env_init
from nightjar.cli.env.install import env_install
from nightjar.cli.env.list import env_list
from nightjar.cli.eval.run import eval_run
from nightjar.cli.publish import publish
from nightjar.cli.services.model_server import model_server
from nightjar.cli.sql import sql
from nightjar.cli.warehouse import compact, info, warehouse
from nightjar.cli.warehouse_doctor import doctor
from nightjar.cli.warehouse_export import export
from nightjar.cli.warehouse_prices import prices, remove_price, set_price
from nightjar.cli.warehouse_prune import prune
from nightjar.cli.warehouse_rebuild import import_results, rebuild
from nightjar.hosting.services import down, up

app = typer.Typer(
    name="nightjar",
    help="LLM evaluations as Prefect flows, every result in DuckDB.",
    epilog="Start with: nightjar demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
eval_app = typer.Typer(help="Run evaluations.", no_args_is_help=True)
env_app = typer.Typer(help="Make, install and list environments.", no_args_is_help=True)
warehouse_app = typer.Typer(callback=warehouse, invoke_without_command=True)
prices_app = typer.Typer(callback=prices, invoke_without_command=True)


def _add(group: typer.Typer, name: str, command: Callable[..., Any]) -> None:
    """Adds a command; its help is as wide as the terminal, wherever lines end in the docstring."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    group.command(name, help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))(command)


_add(app, "demo", demo)
app.add_typer(eval_app, name="eval")
_add(eval_app, "run", eval_run)
_add(app, "sql", sql)
_add(app, "publish", publish)
app.add_typer(warehouse_app, name="warehouse")
_add(warehouse_app, "info", info)
_add(warehouse_app, "doctor", doctor)
_add(warehouse_app, "rebuild", rebuild)
_add(warehouse_app, "import", import_results)
_add(warehouse_app, "export", export)
_add(warehouse_app, "compact", compact)
_add(warehouse_app, "prune", prune)
warehouse_app.add_typer(prices_app, name="prices")
_add(prices_app, "set", set_price)
_add(prices_app, "remove", remove_price)
app.add_typer(env_app, name="env")
_add(env_app, "init", env_init)
_add(env_app, "install", env_install)
_add(env_app, "list", env_list)
_add(app, "up", up)
_add(app, "down", down)
_add(app, "model-server", model_server)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nightjar {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """LLM evaluations as Prefect flows, every result in DuckDB."""
