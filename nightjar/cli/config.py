"""``nightjar config``: the user's own defaults."""

from __future__ import annotations

import json
from typing import Annotated

from nightjar.cli.options import JsonOption, argument
from nightjar.cli.output import print_json, print_values, shown
from nightjar.cli.terminal import echo
from nightjar.core.home import config_path
from nightjar.core.text import harmless
from nightjar.errors import ConfigError
from nightjar.evaluation.config.user_config import field_of, set_setting, settings, unset_setting
from nightjar.warehouse.location import refuse_secret

_KeyArgument = Annotated[
    str, argument("Key of the default, such as eval.model or eval.sampling_args.top_p.", metavar="KEY")
]


def config_show(as_json: JsonOption = False) -> None:
    """Show the defaults that are set, and their file."""
    values = settings()
    if as_json:
        print_json({"path": str(config_path()), "values": values})
        return
    print_values(values)
    echo(f"{'In' if values else 'Nothing is set in'} {config_path()}", err=True)


def config_get(key: _KeyArgument, as_json: JsonOption = False) -> None:
    """Print one default. If it is not set, the exit code is 1.

    Example: nightjar config get eval.model
    """
    values = settings()
    if key not in values:
        below = {name.removeprefix(f"{key}."): value for name, value in values.items() if name.startswith(f"{key}.")}
        if not below:
            field_of(key)
            raise ConfigError(f"{key} is not set. Set it: nightjar config set {key} VALUE")
        values[key] = below
    if as_json:
        print_json(values[key])
    else:
        echo(shown(values[key]))


def config_set(
    key: _KeyArgument,
    value: Annotated[
        str, argument("Value, as for the flag of the field. Write lists and tables as JSON.", metavar="VALUE")
    ],
    as_json: JsonOption = False,
) -> None:
    """Set a default. Flags, suites, the endpoint registry and environments override it.

    The keys are output_dir, warehouse, judge.model, judge.base_url, judge.api_key_var, and eval.FIELD for each field in
    docs/reference/configuration.md. A secret is not stored: set the name of the environment variable that holds the
    secret.

    Examples: nightjar config set eval.model my-model | nightjar config set eval.sampling_args.top_p 0.9
    """
    if key == "warehouse":
        refuse_secret(value)
    found = set_setting(key, value)
    if as_json:
        print_json({"key": key, "value": found, "path": str(config_path())})
        return
    echo(f"{key} = {harmless(json.dumps(found, ensure_ascii=False))}")
    echo("Next: nightjar config show")


def config_unset(key: _KeyArgument, as_json: JsonOption = False) -> None:
    """Unset a default. If it is not set, nothing happens.

    Example: nightjar config unset eval.model
    """
    was_set = unset_setting(key)
    if as_json:
        print_json({"key": key, "was_set": was_set})
    else:
        echo(f"{key} is now unset" if was_set else f"{key} was not set")
