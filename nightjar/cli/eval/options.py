"""The options that commands share: each is a type with its flags and its help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

_MODEL, _SCOPE, _PACE, _OUTPUT = "Model", "What to run", "Pace", "Results"


def json_object(text: str) -> dict[str, Any]:
    """Parses the value of an option that takes a JSON object."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"at character {error.pos + 1} of {text!r}"
        raise typer.BadParameter(f"not valid JSON: {error.msg} {place}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f"expected a JSON object such as '{{\"key\": 1}}', found {text!r}")
    return value


def _check_num_examples(value: int | None) -> int | None:
    if value is not None and value < 1 and value != -1:
        raise typer.BadParameter(f"must be 1 or more, or -1 for all examples, found {value}")
    return value


def _check_seconds(value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise typer.BadParameter(f"must be more than 0 seconds, found {value}")
    return value


def _option(*flags: str, help: str, panel: str, **kwargs: Any) -> Any:  # noqa: A002 - typer's own word
    if "min" in kwargs:
        kwargs.setdefault("metavar", "N")  # "<int range>" would leave no room for the flag in 80 columns
    return typer.Option(*flags, help=help, rich_help_panel=panel, **kwargs)


EnvId = Annotated[
    str,
    typer.Argument(metavar="ENV", help="Environment: name, owner/name or owner/name@version.", show_default=False),
]
Model = Annotated[str, _option("--model", "-m", help="Model, as the endpoint names it.", panel=_MODEL)]
Provider = Annotated[
    str,
    _option(
        "--provider",
        "-p",
        help="prime, openai, anthropic, openrouter, deepseek, minimax, glm, local or vllm.",
        panel=_MODEL,
    ),
]
BaseUrl = Annotated[
    str | None,
    _option(
        "--api-base-url",
        "-b",
        help="Base URL of the endpoint (default: the provider's).",
        panel=_MODEL,
    ),
]
ApiKeyVar = Annotated[
    str | None,
    _option(
        "--api-key-var",
        "-k",
        help="Name of the environment variable with the key; an endpoint on this machine needs "
        "none (default: the provider's).",
        panel=_MODEL,
    ),
]
ApiClientType = Annotated[
    str | None,
    _option(
        "--api-client-type",
        help="Protocol: openai_chat_completions, openai_completions, openai_chat_completions_token, openai_responses "
        "or anthropic_messages (default: the provider's).",
        panel=_MODEL,
    ),
]
MaxTokens = Annotated[
    int | None,
    _option("--max-tokens", "-t", min=1, help="Tokens to generate at the most.", panel=_MODEL),
]
Temperature = Annotated[
    float | None,
    _option("--temperature", "-T", min=0.0, help="Sampling temperature.", panel=_MODEL),
]
SamplingArgs = Annotated[
    dict[str, Any] | None,
    _option(
        "--sampling-args",
        "-S",
        parser=json_object,
        metavar="JSON",
        help="Further sampling parameters; they win over -t and -T.",
        panel=_MODEL,
    ),
]
EnvArgs = Annotated[
    dict[str, Any] | None,
    _option(
        "--env-args",
        "-a",
        parser=json_object,
        metavar="JSON",
        help="Arguments of the environment.",
        panel=_SCOPE,
    ),
]
ExtraEnvKwargs = Annotated[
    dict[str, Any] | None,
    _option(
        "--extra-env-kwargs",
        "-x",
        parser=json_object,
        metavar="JSON",
        help='Settings of the environment once it is loaded, such as \'{"max_turns": 5, "hook_timeout_seconds": 60}\'.',
        panel=_SCOPE,
    ),
]
EnvDirPath = Annotated[
    str,
    _option(
        "--env-dir-path",
        help="Folder of environments; a run goes to its MODULE/outputs where that is there.",
        panel=_SCOPE,
    ),
]
NumExamples = Annotated[
    int | None,
    _option(
        "--num-examples",
        "-n",
        callback=_check_num_examples,
        help="Examples; -1 for all (default: what the environment's pyproject.toml says, else 5).",
        panel=_SCOPE,
    ),
]
RolloutsPerExample = Annotated[
    int | None,
    _option(
        "--rollouts-per-example",
        "-r",
        min=1,
        help="Rollouts of each (default: what the environment's pyproject.toml says, else 3).",
        panel=_SCOPE,
    ),
]
ShuffleSeed = Annotated[
    int | None,
    _option("--shuffle-seed", help="Draw examples in random order with this seed.", panel=_SCOPE),
]
MaxConcurrent = Annotated[
    int,
    _option(
        "--max-concurrent",
        "-c",
        min=1,
        help="Requests in flight at the most; fewer while the endpoint is overloaded.",
        panel=_PACE,
    ),
]
MaxConcurrentGeneration = Annotated[
    int | None,
    _option("--max-concurrent-generation", min=1, help="The same for generation alone.", panel=_PACE),
]
MaxConcurrentScoring = Annotated[
    int | None,
    _option("--max-concurrent-scoring", min=1, help="Groups scored at once.", panel=_PACE),
]
MaxRetries = Annotated[
    int,
    _option(
        "--max-retries",
        min=0,
        help="Further attempts at a rollout after errors that can heal: rate limits, server errors, lost connections.",
        panel=_PACE,
    ),
]
RequestTimeout = Annotated[
    float,
    _option(
        "--request-timeout",
        metavar="SECONDS",
        callback=_check_seconds,
        help="How long a request may take.",
        panel=_PACE,
    ),
]
ScoringTimeout = Annotated[
    float | None,
    _option(
        "--scoring-timeout",
        metavar="SECONDS",
        callback=_check_seconds,
        help="How long scoring a rollout may take (default: what its rubric says, 600).",
        panel=_PACE,
    ),
]
NoInterleaveScoring = Annotated[
    bool,
    _option("--no-interleave-scoring", "-N", help="Score after all is generated.", panel=_PACE),
]
IndependentScoring = Annotated[
    bool,
    _option(
        "--independent-scoring",
        "-i",
        help="Score each rollout by itself, not in its group.",
        panel=_PACE,
    ),
]
StateColumns = Annotated[
    str,
    _option(
        "--state-columns",
        "-C",
        help="Further columns of the state to keep, separated by commas.",
        panel=_OUTPUT,
    ),
]
Tags = Annotated[
    list[str] | None,
    _option("--tag", help="A word to find the run by, in SQL; may be given several times.", panel=_OUTPUT),
]
SaveResults = Annotated[
    bool,
    _option(
        "--save-results",
        "-s",
        help="Accepted for compatibility: results are always saved.",
        panel=_OUTPUT,
    ),
]
Resume = Annotated[
    str | None,
    _option(
        "--resume",
        "-R",
        metavar="[PATH]",
        help="Go on with a run: a run directory, or without PATH the newest run of these settings "
        "that is not complete.",
        panel=_OUTPUT,
    ),
]
OutputDir = Annotated[
    Path | None,
    _option("--output-dir", "-o", help="Folder of run directories (default: ./outputs).", panel=_OUTPUT),
]
WarehouseFolder = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        help="Folder or URL of the warehouse (default: NIGHTJAR_WAREHOUSE, else ./outputs/warehouse).",
        rich_help_panel=_OUTPUT,
    ),
]
Direct = Annotated[
    bool,
    _option("--direct", help="Run in this process, without Prefect.", panel=_OUTPUT),
]
Prefect = Annotated[
    bool,
    _option(
        "--prefect",
        help="Run as a Prefect flow, with a temporary server where there is none.",
        panel=_OUTPUT,
    ),
]
AsJson = Annotated[bool, _option("--json", help="Print the outcome as JSON.", panel=_OUTPUT)]
Verbose = Annotated[bool, _option("--verbose", "-v", help="Log more.", panel=_OUTPUT)]
