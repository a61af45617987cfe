"""``nightjar eval view-config``: what a run was started with, and the command that runs it again.

nightjar eval view-config 0a1b2c3d4e5f
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from nightjar.cli.eval.arguments import RunArgument
from nightjar.cli.eval.options import FLAGS, Flag, flag_names, names_in
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.config import RunConfig, parameters
from nightjar.evaluation.saved_config import rescoring_command, saved_config
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.terminal import harmless

_ALWAYS = {"model", "num_examples", "rollouts_per_example"}  # an environment may have defaults of its own


def eval_view_config(run: RunArgument, warehouse: WarehouseOption = None, as_json: JsonOption = False) -> None:
    """Show what a run was started with, and the command that runs it again.

    Example: nightjar eval view-config 0a1b2c
    """
    directory = find_stored_run(run, warehouse=warehouse).directory
    config = saved_config(directory)
    command = rescoring_command(directory.read_config()) or command_of(config)
    values = config.model_dump(mode="json")
    if as_json:
        print_json({"config": values, "command": command})
        return
    width = max(map(len, values)) + 2
    for name, value in values.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        echo(f"{name:<{width}}{harmless(shown)}")
    echo(f"\n{harmless(shlex.join(command))}")


def command_of(config: RunConfig) -> list[str]:
    """Returns the words that start a run of this configuration; what is so by default is left out."""
    defaults = RunConfig(env_id=config.env_id, provider=config.provider).model_dump(mode="json")
    values = config.model_dump(mode="json")
    values["sampling_args"] = {name: each for name, each in config.sampling_args.items() if each != values.get(name)}
    command = ["nightjar", "eval", "run", config.env_id]
    for name, field in parameters().items():
        if name != "env_id" and (values[name] != defaults[name] or name in _ALWAYS):
            command += _typed(FLAGS.get(name, Flag()), flag_names(name, field)[0], values[name])
    return command


def _typed(known: Flag, flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag]
    if isinstance(value, dict) and known.reader is not None:
        return [word for name, each in value.items() for word in (flag, f"{name}: {each}")]
    if isinstance(value, list) and known.parser is None:
        return [word for each in value for word in (flag, each)]
    if known.parser is names_in:
        return [flag, ",".join(value)]
    return [flag, json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)]
