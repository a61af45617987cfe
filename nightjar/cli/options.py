"""The arguments and options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer


def warehouse_option(panel: str | None = None) -> Any:
    """Returns the option ``--warehouse``, in a panel of the help."""
    return typer.Option(
        "--warehouse",
        help="Folder or URL of the warehouse (default: NIGHTJAR_WAREHOUSE, else ./outputs/warehouse).",
        rich_help_panel=panel,
    )


def _checked(prefix: str) -> str:
    if not re.fullmatch(r"[\w.-]*", prefix):
        raise typer.BadParameter("use only letters, digits, '-', '_' and '.'")
    return prefix


OUTPUT_DIR_HELP = "Folder of run directories (default: ./outputs)."
PREFECT_URL_HELP = (
    "URL of the Prefect server (default: PREFECT_API_URL, the active Prefect profile, or the server of 'nightjar up')."
)

WarehouseOption = Annotated[str | None, warehouse_option()]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonListOption = Annotated[bool, typer.Option("--json", help="Print a JSON list.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
OutputDirOption = Annotated[Path | None, typer.Option("--output-dir", "-o", help=OUTPUT_DIR_HELP)]
PrefectUrlOption = Annotated[str | None, typer.Option("--prefect-url", metavar="URL", help=PREFECT_URL_HELP)]

RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Run ID, the beginning of one, or a run directory.", show_default=False),
]
HostedRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="ID of a run or flow run, the beginning of one, or its name.", show_default=False
    ),
]
PageOption = Annotated[int, typer.Option("--page", "-p", min=1, metavar="N", help="Page number.")]

EnvIdArgument = Annotated[str, typer.Argument(metavar="ENV", help="Environment.", show_default=False)]
MetricOption = Annotated[
    str, typer.Option(metavar="NAME", help="reward, correct (share at the pass threshold), or the name of a metric.")
]
IntervalAlphaOption = Annotated[
    float, typer.Option(min=0, max=1, metavar="X", help="Probability that an interval misses the true value.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(metavar="FIELD", help="Field of info that related examples share, such as a passage."),
]

EnvArgument = Annotated[
    str | None, typer.Argument(metavar="ENV", help="Benchmark or environment: a name, path.py:name or a URI.")
]
BenchOption = Annotated[str | None, typer.Option("--bench", "--benchmark", "-b", metavar="ENV", help="Same as ENV.")]
EnvArgsOption = Annotated[str, typer.Option("--env-args", "-a", metavar="JSON", help="Arguments of the environment.")]
EnvDirOption = Annotated[
    Path, typer.Option("--env-dir-path", metavar="FOLDER", help="Folder in which to look for environments.")
]

NamePrefixOption = Annotated[
    str,
    typer.Option(
        "--name-prefix",
        metavar="NAME",
        callback=_checked,
        help="Prefix for separate deployments and a separate work pool: NAME-evaluate, NAME-nightjar.",
    ),
]
TakeOverOption = Annotated[
    bool, typer.Option("--take-over", help="Take over deployments that another folder has registered.")
]
