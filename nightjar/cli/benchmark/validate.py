"""``nightjar env validate``, and ``nightjar validate``: checks the prompts and the scoring of an environment."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from typing import Annotated

import typer

from nightjar.cli.benchmark.tasks import SCHEME, validate_tasks
from nightjar.cli.eval.nemo_flags import RefusedKeyOption
from nightjar.cli.options import BenchOption, EnvArgsOption, EnvArgument, EnvDirOption, JsonOption, one_name, option
from nightjar.cli.terminal import echo
from nightjar.compat.nemo.engine.model_client import ModelClient
from nightjar.core.environment_id import ENVIRONMENTS_DIR
from nightjar.core.text import counted, shortened
from nightjar.environments import load_environment
from nightjar.environments.packages.lookup import environments_in
from nightjar.errors import MissingKeyError
from nightjar.evaluation.config.nemo.endpoints import usual_key
from nightjar.evaluation.validating import Tried, Validation, validate

_SHOWN = 60
_SAMPLES = 10


def env_validate(
    env: EnvArgument = None,
    bench: BenchOption = None,
    samples: Annotated[
        int | None, option("Number of examples to try (default: 10; all tasks of harbor://).", "--samples", "-s", min=1)
    ] = None,
    max_sandboxes: Annotated[
        int | None,
        option("For harbor://, the maximum number of containers at once (default: by cores and memory).", min=1),
    ] = None,
    model_url: Annotated[
        str | None, option("URL of a model that replies in place of references.", envvar="NEMO_MODEL_URL")
    ] = None,
    model_id: Annotated[str | None, option("Name of the model at --model-url.", envvar="NEMO_MODEL_ID")] = None,
    api_key: RefusedKeyOption = None,  # noqa: ARG001 - refused
    api_key_var: Annotated[
        str | None,
        option(
            "Variable with the model's key (default: NEMO_API_KEY; NVIDIA_API_KEY for NVIDIA's hosts).",
            "--api-key-var",
            "-k",
            metavar="NAME",
        ),
    ] = None,
    verbose: Annotated[bool, option("Show each example.", "--verbose", "-v")] = False,
    as_json: JsonOption = False,
    env_args: EnvArgsOption = None,
    env_dir_path: EnvDirOption = ENVIRONMENTS_DIR,
) -> None:
    """Check on a few examples of an environment that reference answers score 1 and empty answers score 0.

    Rollouts run as in an evaluation, with turns, tools and sandboxes. Without --model-url, no model is called, except
    the judge if the environment has one. If a reference answer of a NeMo Evaluator benchmark scores less than 1, this
    is reported and is not a failure.

    With harbor://PATH, checks for each task of agents whether it can run here, that the agent oracle gets the reward 1,
    and that the agent nop gets the reward 0.

    Examples: nightjar env validate gsm8k | nightjar env validate gsm8k -a '{"dataset": "test.jsonl"}' | nightjar
    validate bench.py:sums --model-url URL --model-id MODEL | nightjar env validate harbor://configs/harbor
    """
    if (model_url is None) != (model_id is None):
        raise typer.BadParameter("--model-url and --model-id require each other.")
    name = one_name(env, bench)
    if name.startswith(SCHEME):
        if model_url is not None or samples is not None:
            raise typer.BadParameter(
                f"{SCHEME} is validated as a whole and without a model. To choose tasks, write "
                """-a '{"tasks": ["NAME"]}'."""
            )
        validate_tasks(name, env_args or {}, max_sandboxes, verbose=verbose, as_json=as_json)
        return
    if max_sandboxes is not None:
        raise typer.BadParameter(f"--max-sandboxes limits the containers of {SCHEME}PATH.")
    with environments_in(env_dir_path):
        loaded = load_environment(name, **(env_args or {}))
    client = None
    if model_url is not None:
        client = ModelClient(model_url, model_id or "", _key(api_key_var or usual_key(model_url))).client
    found = asyncio.run(validate(loaded, samples or _SAMPLES, client, model_id or ""))
    if as_json:
        echo(json.dumps({**asdict(found), "passed": not found.problems}, indent=2, default=str))
    else:
        _show(found, who=model_id or "references", verbose=verbose)
    if found.problems:
        raise typer.Exit(1)


def _key(variable: str | None) -> str | None:
    if variable is not None and not os.environ.get(variable):
        raise MissingKeyError([variable])
    return os.environ[variable] if variable else None


def _show(found: Validation, *, who: str, verbose: bool) -> None:
    for tried in found.tried if verbose else ():
        echo(_line(tried))
    right = f"{found.correct}/{len(found.tried)} correct"
    echo(f"{found.env_id}: {counted(found.size, 'example')}. Replies of {who}: {right}, in {found.seconds:.1f} s")
    for problem, count in found.problems.items():
        echo(f"FAIL: {problem} ({count}×)")
    if not found.problems:
        echo("PASS")


def _line(tried: Tried) -> str:
    asked = shortened(tried.asked, _SHOWN)
    reward = "none" if tried.reward is None else f"{tried.reward:g}"
    return f"{tried.number}: {asked} | reward {reward} | expected {tried.expected!r} | found {tried.found!r}"
