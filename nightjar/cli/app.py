"""All commands in one table. The module of a command is imported when the command or its own help is requested.

To add a command ``nightjar env show``, write a typed function ``env_show`` with a docstring in
``nightjar/cli/environments.py``, and add a line to ``COMMANDS``::

    "env show": "environments:env_show",

The first paragraph of the docstring is the help in the list of commands. A command with subcommands, such as
``warehouse``, is a group: its function is called before the subcommand, and also if no subcommand is given. A group
in ``GROUPS`` has no function and prints its help.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

from nightjar import __version__
from nightjar.cli.terminal import echo

GROUPS = {
    "eval": "Run evaluations, and inspect, retry and share their runs.",
    "config": "Manage your own defaults for runs, the warehouse and the judge.",
    "cache": "Manage the model responses that 'eval run --cache' keeps.",
    "data": "Download the data of benchmarks before their runs.",
    "env": "Create, install, list and validate environments.",
    "sandbox": "List and remove the containers of rollouts.",
}

COMMANDS = {
    "demo": "demo:demo",
    "sql": "sql.command:sql",
    "publish": "warehouse.transfer:publish",
    "up": "hosting:up",
    "status": "hosting:status",
    "doctor": "doctor.command:doctor",
    "deploy": "deploy:deploy",
    "down": "hosting:down",
    "model-server": "model_server:model_server",
    "eval run": "eval.run:eval_run",
    "eval list": "eval.runs:eval_list",
    "eval get": "eval.runs:eval_get",
    "eval stats": "eval.report:eval_stats",
    "eval samples": "eval.samples:eval_samples",
    "eval logs": "eval.hosted:eval_logs",
    "eval stop": "eval.hosted:eval_stop",
    "eval report": "eval.report:eval_report",
    "eval merge": "eval.exchange:eval_merge",
    "eval view-config": "eval.runs:eval_view_config",
    "eval push": "eval.exchange:eval_push",
    "eval pull": "eval.exchange:eval_pull",
    "eval retry": "eval.reruns:eval_retry",
    "eval rescore": "eval.reruns:eval_rescore",
    "eval repair": "eval.reruns:eval_repair",
    "view": "view:view",
    "docs": "docs:docs",
    "export": "export:export",
    "compare": "comparison:compare",
    "gate": "comparison:gate_command",
    "trend": "trends:show_trend",
    "plan": "trends:show_plan",
    "leaderboard": "trends:show_leaderboard",
    "nights": "nights:nights",
    "nights show": "nights:nights_show",
    "nights accept": "nights:nights_accept",
    "nights judge": "nights:nights_judge",
    "config show": "config:config_show",
    "config get": "config:config_get",
    "config set": "config:config_set",
    "config unset": "config:config_unset",
    "sandbox list": "sandboxes:sandbox_list",
    "sandbox prune": "sandboxes:sandbox_prune",
    "cache info": "cache:cache_info",
    "cache clear": "cache:cache_clear",
    "warehouse": "warehouse.upkeep:warehouse",
    "warehouse info": "warehouse.upkeep:info",
    "warehouse doctor": "warehouse.upkeep:doctor",
    "warehouse rebuild": "warehouse.upkeep:rebuild",
    "warehouse import": "warehouse.transfer:import_results",
    "warehouse export": "warehouse.transfer:export_runs",
    "warehouse compact": "warehouse.upkeep:compact",
    "warehouse prune": "warehouse.upkeep:prune",
    "warehouse prices": "warehouse.prices:prices",
    "warehouse prices set": "warehouse.prices:set_price",
    "warehouse prices remove": "warehouse.prices:remove_price",
    "list": "environments:env_list",
    "serve": "benchmark.serve:serve",
    "validate": "benchmark.validate:env_validate",
    "package": "benchmark.package:package",
    "data get": "data:data_get",
    "env init": "environments:env_init",
    "env install": "environments:env_install",
    "env list": "environments:env_list",
    "env validate": "benchmark.validate:env_validate",
}
"""Maps the words of a command to ``module:function`` in this package, in the order of the help."""

app = typer.Typer(
    name="nightjar",
    help="LLM evaluations as Prefect flows, every result in DuckDB.",
    epilog="Start with: nightjar demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _Unloaded(TyperCommand):
    """A command that is not imported yet; its callback imports it."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        assert self.callback is not None, "_add gives one"
        return self.callback().make_context(*args, **kwargs)


def summary(words: str) -> str:
    """Returns the summary of a command for the list of commands, without importing the command's module."""
    if words in GROUPS:
        return GROUPS[words]
    module, _, function = COMMANDS[words].partition(":")
    source = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
    # Importing all commands would take seconds; parsing their syntax trees would take a tenth of a second.
    found = re.search(rf'^def {function}\(.*?^    r?"""(.*?)(?:\n\n|""")', source, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{function} has a docstring"
    return " ".join(found[1].split())


def _add(group: typer.Typer, commands: Iterable[str]) -> None:
    for words in commands:
        name = words.rpartition(" ")[2]
        group.command(name, cls=_Unloaded, help=summary(words))(lambda words=words: _load(words))


def _load(words: str) -> Any:  # typer's command class has no public name
    name = words.rpartition(" ")[2]
    function = None
    if words in COMMANDS:
        module, _, function_name = COMMANDS[words].partition(":")
        function = getattr(import_module(f"nightjar.cli.{module}"), function_name)
    text = GROUPS[words] if function is None else _joined_lines(function)
    subcommands = [command for command in COMMANDS if command.rpartition(" ")[0] == words]
    if function is not None and not subcommands:
        alone = typer.Typer(add_completion=False)
        alone.command(name, help=text)(function)
        return get_command(alone)
    group = typer.Typer(
        name=name,
        help=text,
        callback=function,
        invoke_without_command=function is not None,
        no_args_is_help=function is None,
    )
    _add(group, subcommands)
    return get_group(group)


def _joined_lines(function: Callable[..., Any]) -> str:
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        echo(f"nightjar {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """LLM evaluations as Prefect flows, every result in DuckDB."""


_add(app, dict.fromkeys(words.partition(" ")[0] for words in COMMANDS))
