"""The arguments and options that several commands share."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

Command: TypeAlias = Callable[..., None]


def option(text: str, *flags: str, panel: str | None = None, **settings: Any) -> Any:
    return typer.Option(*flags, help=text, rich_help_panel=panel, **settings)


def argument(text: str, **settings: Any) -> Any:
    return typer.Argument(help=text, show_default=False, **settings)


def takes_group(parameter: str, kind: type[Any]) -> Callable[[Command], Command]:
    """Replaces a parameter of a command by the flags that are the fields of its dataclass."""
    flags = list(inspect.signature(kind, eval_str=True).parameters.values())

    def decorate(command: Command) -> Command:
        @wraps(command)
        def taking_group(*arguments: Any, **given: Any) -> None:
            group = kind(**{flag.name: given.pop(flag.name) for flag in flags})
            command(*arguments, **given, **{parameter: group})

        signature = inspect.signature(command, eval_str=True)
        own = ([each] if each.name != parameter else flags for each in signature.parameters.values())
        taking_group.__signature__ = signature.replace(parameters=[*chain(*own)])  # type: ignore[attr-defined]
        return taking_group

    return decorate


def one_name(env: str | None, bench: str | None) -> str:
    if (env is None) == (bench is None):
        raise typer.BadParameter("Name one environment: ENV, or --bench ENV.")
    return str(env or bench)


def json_object(text: str) -> dict[str, Any]:
    value = json_value(text)
    if not isinstance(value, dict):
        raise typer.BadParameter(f"expected a JSON object such as '{{\"key\": 1}}', found {text!r}")
    return value


def json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"at character {error.pos + 1} of {text!r}"
        raise typer.BadParameter(f"not valid JSON: {error.msg} {place}") from None
    except RecursionError:
        raise typer.BadParameter("brackets are nested too deeply") from None


def _checked(prefix: str) -> str:
    if not re.fullmatch(r"[\w.-]*", prefix):
        raise typer.BadParameter("use only letters, digits, '-', '_' and '.'")
    return prefix


WAREHOUSE_HELP = "Folder or URL of the warehouse (default: the value of NIGHTJAR_WAREHOUSE, else ./outputs/warehouse)."
OUTPUT_DIR_HELP = "Folder of run directories (default: ./outputs)."
PREFECT_URL_HELP = (
    "URL of the Prefect server (default: PREFECT_API_URL, the active Prefect profile, or the server of 'nightjar up')."
)

WarehouseOption = Annotated[str | None, option(WAREHOUSE_HELP, "--warehouse")]
JsonOption = Annotated[bool, option("Print JSON.", "--json")]
VerboseOption = Annotated[bool, option("Log more.", "--verbose", "-v")]
YesOption = Annotated[bool, option("Do not ask for confirmation.", "--yes", "-y")]
OutputDirOption = Annotated[Path | None, option(OUTPUT_DIR_HELP, "--output-dir", "-o")]
PrefectUrlOption = Annotated[str | None, option(PREFECT_URL_HELP, "--prefect-url", metavar="URL")]

RunArgument = Annotated[str, argument("Run ID, the beginning of a run ID, or a run directory.", metavar="RUN")]
HostedRunArgument = Annotated[
    str, argument("ID of a run or flow run, the beginning of the ID, or the name of the run.", metavar="RUN")
]
PageOption = Annotated[int, option("Page number.", "--page", "-p", min=1, metavar="N")]

EnvIdArgument = Annotated[str, argument("Environment.", metavar="ENV")]
MetricOption = Annotated[str, option("reward, correct (pass@1), or the name of a metric.", metavar="NAME")]
AlphaOption = Annotated[float, option("Probability that an interval misses the true value.", min=0, max=1, metavar="X")]
ClusterOption = Annotated[
    str | None, option("Field of info with the same value in related examples, such as 'passage'.", metavar="FIELD")
]

EnvArgument = Annotated[str | None, argument("Benchmark or environment: a name, path.py:name or a URI.", metavar="ENV")]
BenchOption = Annotated[str | None, option("Same as ENV.", "--bench", "--benchmark", "-b", metavar="ENV")]
EnvArgsOption = Annotated[
    Any, option("Arguments of the environment.", "--env-args", "-a", parser=json_object, metavar="JSON")
]
EnvDirOption = Annotated[Path, option("Folder in which to look for environments.", "--env-dir-path", metavar="FOLDER")]

NamePrefixOption = Annotated[
    str,
    option(
        "Prefix for separate deployments and a separate work pool, such as NAME-evaluate.",
        metavar="NAME",
        callback=_checked,
    ),
]
TakeOverOption = Annotated[bool, option("Take over deployments that another folder has registered.", "--take-over")]
