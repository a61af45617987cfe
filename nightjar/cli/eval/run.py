"""``nightjar eval run``: parses flags, runs evaluations and prints results; ``flags`` has flags of ``RunConfig``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.eval.flags import (
    CONCURRENCY,
    ENVIRONMENT,
    HOSTED,
    MODEL,
    OUTPUT,
    flag_names,
    names_in,
    secret_values,
    takes_flags,
)
from nightjar.cli.eval.nemo_flags import NemoFlags, runs_folder_of
from nightjar.cli.options import OUTPUT_DIR_HELP, PREFECT_URL_HELP, WAREHOUSE_HELP, option, takes_group
from nightjar.core.logs import log_to_stderr
from nightjar.errors import ConfigError
from nightjar.evaluation.config.fields import name_values
from nightjar.evaluation.config.parameters import parameters
from nightjar.evaluation.config.precedence import FLAG, Evaluation, Layer, resolve_evaluation
from nightjar.evaluation.config.suite import ENDINGS, load_suite

if TYPE_CHECKING:
    from nightjar.evaluation import Outcome
    from nightjar.evaluation.config.nemo.file import NemoConfigFile

_LATEST = "latest"


_option, _hosted = partial(option, panel=OUTPUT), partial(option, panel=HOSTED)


def _ignored(text: str, *flags: str, **settings: Any) -> Any:
    return option(f"Accepted for compatibility: {text}", *flags, **settings)


@dataclass(frozen=True, kw_only=True)
class HostedFlags:
    hosted: Annotated[bool, _hosted("Submit the run, with its environment, to a worker.", "--hosted")] = False
    deployment: Annotated[
        str | None, _hosted("Deployment to run (default: evaluate/evaluate).", metavar="FLOW/NAME")
    ] = None
    follow: Annotated[bool, _hosted("Show the log until the run ends, and exit with the run's status.", "--follow")] = (
        False
    )
    poll_interval: Annotated[
        float | None, _hosted("Seconds between requests to the server (default: 1).", metavar="SECONDS", min=0.1)
    ] = None
    allow_sandbox_access: Annotated[bool, _hosted("Let the run create sandboxes.", "--allow-sandbox-access")] = False
    allow_instances_access: Annotated[
        bool, _hosted("Let the run create instances, if the work pool can.", "--allow-instances-access")
    ] = False
    custom_secrets: Annotated[
        dict[str, str] | None,
        _hosted('Variables {"NAME": "value"}, never written to disk.', metavar="JSON", parser=secret_values),
    ] = None
    eval_name: Annotated[str | None, _hosted("Name of the run on the server.", metavar="NAME")] = None
    shards: Annotated[
        int | None, _hosted("Submit the run in N parts, each a flow run. The last part joins them.", metavar="N", min=2)
    ] = None

    def values(self) -> dict[str, Any]:
        return {f"--{name.replace('_', '-')}": value for name, value in asdict(self).items() if name != "hosted"}


@takes_flags()
@takes_group("nemo", NemoFlags)
@takes_group("hosting", HostedFlags)
def eval_run(
    fields: dict[str, Any],
    *,
    nemo: NemoFlags,
    endpoints_path: Annotated[
        Path | None,
        _option("Endpoint registry (default: ./configs/endpoints.toml).", "--endpoints-path", "-e", panel=MODEL),
    ] = None,
    disable_env_server: Annotated[  # noqa: ARG001 - ignored
        bool, _ignored("there is no such server.", "--disable-env-server", panel=ENVIRONMENT)
    ] = False,
    num_workers: Annotated[  # noqa: ARG001 - ignored
        str | None, _ignored("environments need no workers.", "--num-workers", "-w", metavar="N", panel=CONCURRENCY)
    ] = None,
    save_results: Annotated[  # noqa: ARG001 - ignored
        bool, _ignored("results are always saved.", "--save-results", "-s", panel=OUTPUT)
    ] = False,
    dry_run: Annotated[bool, _option("Only show the source of each value and the expected cost.", "--dry-run")] = False,
    resume: Annotated[
        str | None,
        _option(
            "Resume this run directory (ENV is not needed). Without PATH, resume the newest run with these settings.",
            "--resume",
            "-R",
            metavar="[PATH]",
        ),
    ] = None,
    output_dir: Annotated[Path | None, _option(OUTPUT_DIR_HELP, "--output-dir", "-o")] = None,
    warehouse: Annotated[str | None, _option(WAREHOUSE_HELP)] = None,
    direct: Annotated[bool, _option("Run in this process, without Prefect.", "--direct")] = False,
    prefect: Annotated[bool, _option("Run as a Prefect flow, if needed on a temporary server.", "--prefect")] = False,
    prefect_url: Annotated[str | None, _option(PREFECT_URL_HELP, metavar="URL")] = None,
    hosting: HostedFlags,
    tui: Annotated[bool, _option("Show progress on the full screen.", "--tui", "-u", "--fullscreen", "-f")] = False,
    debug: Annotated[
        bool, _option("Show log lines and plain progress bars instead of the live view.", "--debug", "-d")
    ] = False,
    abbreviated: Annotated[bool, _option("End with one line per run.", "--abbreviated-summary", "-A")] = False,
    heartbeat_url: Annotated[str | None, _option("Request this URL whenever rollouts finish.", metavar="URL")] = None,
    as_json: Annotated[bool, _option("Print the outcome as JSON, or as an array for several runs.", "--json")] = False,
    verbose: Annotated[bool, _option("Log more.", "--verbose", "-v")] = False,
) -> None:
    """Evaluate a model in an environment.

    The run appears in the Prefect UI if a Prefect server is configured, or 'nightjar up' runs one; otherwise it runs in
    this process. Every finished attempt is saved immediately: --resume continues an interrupted run without repeating
    finished attempts, and leaves a completed run unchanged.
    """
    from nightjar.cli.eval.live import style_of
    from nightjar.cli.eval.running import Mode, check, finish, finish_together, run_together, runner, watched

    fields = nemo.with_fields(fields)
    style = style_of(tui=tui, debug=debug, no_progress=nemo.no_progress)
    if direct and (prefect or prefect_url):
        raise typer.BadParameter(f"--direct and --prefect{'-url' if prefect_url else ''} exclude each other")
    if "headers" in fields and not hosting.hosted:  # a worker does not have the variables of this process
        fields["headers"] = name_values(fields["headers"])
    log_to_stderr(verbose or debug)
    env_id = fields.get("env_id", "")
    names = [*nemo.environments] or ([env_id] if env_id.endswith(ENDINGS) or "," not in env_id else names_in(env_id))
    is_suite = _are_several(names, resume, hosting)
    nemo_config = nemo.config(names[0] if len(names) == 1 else "", is_hosted=hosting.hosted)
    local_only = {"--direct": direct, "--prefect": prefect, "--resume": resume, "--output-dir": output_dir}
    _check_hosted_flags(hosting.hosted, hosting.values(), local_only)
    layers = nemo.layers(fields)
    evaluations = _evaluations(names, fields, layers, nemo_config, endpoints_path, resume)
    if dry_run:
        from nightjar.cli.eval.dry_run import show_plans

        show_plans(evaluations, warehouse, as_json=as_json, is_suite=is_suite, is_hosted=hosting.hosted)
        return
    if hosting.hosted:
        _submit(evaluations, hosting, warehouse, prefect_url, as_json=as_json, is_suite=is_suite)
        return
    check(evaluations)
    mode: Mode = "prefect" if prefect else "direct" if direct else "auto"
    has_bundles = bool(output_dir or nemo.environments or nemo_config)
    output_dir = runs_folder_of(nemo_config, output_dir)
    run = runner(mode, output_dir, resume, warehouse, prefect_url)
    bundles = output_dir if has_bundles else None
    if is_suite:
        ended = run_together(evaluations, run, warehouse, style=style, heartbeat_url=heartbeat_url)
        _write_bundles([each.outcome for each in ended], bundles)
        finish_together(ended, as_json)
        return
    outcome = watched(lambda: run(evaluations[0].config), style, heartbeat_url)
    _write_bundles([outcome], bundles)
    finish(outcome, as_json, is_brief=abbreviated)


def _write_bundles(outcomes: Sequence[Outcome | None], folder: Path | None) -> None:
    if folder is not None:
        from nightjar.cli.eval.exchange import write_bundles

        write_bundles(outcomes, folder)


def _check_hosted_flags(is_hosted: bool, hosted_only: Mapping[str, Any], local_only: Mapping[str, Any]) -> None:
    """Refuses flags of local runs for a hosted run, and vice versa. An empty value counts as not given."""
    wrong = [flag for flag, value in (local_only if is_hosted else hosted_only).items() if value]
    if wrong:
        reason = "not for a hosted run" if is_hosted else "only for a hosted run: add --hosted"
        raise typer.BadParameter(f"{', '.join(wrong)}: {reason}")


def _submit(
    evaluations: Sequence[Evaluation],
    hosting: HostedFlags,
    warehouse: str | None,
    prefect_url: str | None,
    *,
    as_json: bool,
    is_suite: bool,
) -> None:
    from nightjar.cli.eval.hosted import POLL_SECONDS, follow_to_its_end, show_submitted, submit_all
    from nightjar.hosting.submitting import HostedOptions

    options = HostedOptions(
        deployment=hosting.deployment or HostedOptions.deployment,
        warehouse=warehouse or "",
        name=hosting.eval_name or "",
        allow_sandbox_access=hosting.allow_sandbox_access,
        allow_instances_access=hosting.allow_instances_access,
        custom_secrets=hosting.custom_secrets or {},
    )
    with _wrong_fields_are_usage():
        submitted = submit_all(evaluations, options, prefect_url, hosting.shards)
    if hosting.follow:
        follow_to_its_end(submitted[0], hosting.poll_interval or POLL_SECONDS, prefect_url, as_json=as_json)
    show_submitted(submitted, prefect_url, as_json=as_json, is_suite=is_suite or bool(hosting.shards))


def _are_several(names: Sequence[str], resume: str | None, hosting: HostedFlags) -> bool:
    """Returns whether several evaluations are given; ``BadParameter`` if a flag works only with one evaluation."""
    is_suite = len(names) != 1 or names[0].endswith(ENDINGS)
    if hosting.shards and (is_suite or hosting.follow):
        raise typer.BadParameter(f"--shards excludes {'--follow' if hosting.follow else 'several evaluations'}")
    if is_suite and (hosting.follow or resume not in {None, _LATEST}):
        raise typer.BadParameter(f"{'--follow' if hosting.follow else '--resume PATH'} works with one evaluation only")
    return is_suite


def _evaluations(
    names: Sequence[str],
    fields: dict[str, Any],
    layers: Sequence[Layer],
    nemo_config: NemoConfigFile | None,
    endpoints_path: Path | None,
    resume: str | None,
) -> Sequence[Evaluation]:
    from nightjar.cli.eval.running import evaluation_of

    with _wrong_fields_are_usage():
        if "env_id" not in fields:
            if resume is None or resume == _LATEST:
                raise typer.BadParameter("name one, or the run directory to resume: --resume PATH", param_hint="'ENV'")
            return [evaluation_of(resume, fields)]
        if len(names) == 1 and names[0].endswith(ENDINGS):
            beside = {name: value for name, value in fields.items() if name != "env_id"}
            if nemo_config:
                return nemo_config.evaluations(beside, endpoints_path)
            return load_suite(Path(names[0]), beside, endpoints_path)
        named = [Layer(FLAG, {**fields, "env_id": name}) for name in names]
        return [resolve_evaluation([each, *layers], endpoints_path) for each in named]


@contextmanager
def _wrong_fields_are_usage() -> Iterator[None]:
    """Turns an error that begins with the name of a field into a usage error of its flag."""
    try:
        yield
    except ConfigError as error:
        name, _, message = str(error).partition(": ")
        if type(error) is not ConfigError or name.partition(".")[0] not in parameters():
            raise
        hint = " / ".join(f"'{flag}'" for flag in flag_names(name, parameters()[name.partition(".")[0]]))
        raise typer.BadParameter(message, param_hint=hint) from error
