"""Moves runs out and in: ``nightjar eval push``, ``pull`` and ``merge``, and the bundles of NeMo Evaluator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.options import JsonOption, OutputDirOption, RunArgument, WarehouseOption, argument, option
from nightjar.cli.output import print_json
from nightjar.cli.terminal import echo
from nightjar.compat.nemo.engine.artifacts import write_all
from nightjar.compat.nemo.engine.results import bundle_of_run
from nightjar.compat.nemo.engine.sharding import EvaluationPart, merged, missing_steps, part_of, shard_part
from nightjar.core.text import counted
from nightjar.engine.runs import RunDirectory
from nightjar.errors import ConfigError, NightjarError
from nightjar.evaluation import Outcome
from nightjar.evaluation.hub import push
from nightjar.evaluation.moving import Moved, pull_from, push_to
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.importers import FoundResults, find_results
from nightjar.warehouse import Warehouse, resolve_warehouse

_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


def write_bundles(outcomes: Iterable[Outcome | None], folder: Path) -> None:
    """Writes the results of runs as NeMo Evaluator does, in one folder per evaluation.

    A bundle is named after its run. A resume replaces the bundle. The bundle of another run is moved into a subfolder.
    A bundle that cannot be written is reported, because the run directory has the same results.
    """
    for outcome in outcomes:
        if outcome is None or not outcome.path.is_dir():
            continue
        label = _NOT_IN_NAMES.sub("-", outcome.metadata.name or outcome.metadata.env_id).strip("-.")
        run_id = f"eval-{outcome.run_id}-{label}"
        try:
            written = write_all({**bundle_of_run(outcome.path), "run_id": run_id}, folder / label)
        except (NightjarError, OSError) as error:
            echo(f"Warning: The bundle of run {outcome.run_id} cannot be written: {error}", err=True)
        else:
            echo(f"Bundle:    {written['bundle']}", err=True)


def eval_merge(
    directory: Annotated[
        Path, argument("Folder with bundles in shard_*, or with run directories of one run.", metavar="DIR")
    ],
    repeats: Annotated[
        int | None,
        option("Repeats of each problem (default: the recorded number).", "--repeats", "-n", min=1, metavar="N"),
    ] = None,
    output: Annotated[Path | None, option("Output folder (default: DIR).", "--output-dir", "-o", metavar="DIR")] = None,
) -> None:
    """Merge the shards of an evaluation into one bundle with rows and statistics; the shards stay unchanged.

    All numbers are computed again from all rows. Except for times, the result equals the result of an undivided run. If
    the shards lack steps, the exit code is 1.

    Example: nightjar eval merge ./eval_results
    """
    target = output or directory
    are_whole = [_merge(parts, target / folder, repeats) for folder, parts in _evaluations(directory).items()]
    if not all(are_whole):
        raise typer.Exit(1)


def _evaluations(directory: Path) -> Mapping[Path, Sequence[EvaluationPart]]:
    found = list(find_results(directory))
    if sharded := [results for results in found if results.shards]:
        return {one.path.relative_to(directory): list(map(shard_part, one.shards)) for one in sharded}
    return {Path(): _in_order(directory, found)}


def _in_order(directory: Path, found: Sequence[FoundResults]) -> list[EvaluationPart]:
    """Returns run directories (later ones last) or bundles as parts, without the results of earlier merges."""
    others = [one for one in found if one.path.resolve() != directory.resolve()]
    apart = [one for one in others if not (one.path / f"{one.path.name}.json").is_file()]  # by an earlier merge
    if not apart:
        raise ConfigError(f"{str(directory)!r} holds one run, and no parts to merge")
    return list(map(part_of, sorted(apart, key=_started)))


def _started(found: FoundResults) -> str:
    return str(RunDirectory(found.path).read_metadata().get("started_at") or "") if found.kind == "nightjar" else ""


def _merge(parts: Sequence[EvaluationPart], folder: Path, repeats: int | None) -> bool:
    if any(part.path.resolve() == folder.resolve() for part in parts):
        raise ConfigError(f"{str(folder)!r} is one of the parts, which stay unchanged. Name another folder: -o DIR")
    bundle = merged(parts, repeats)
    paths = write_all(bundle, folder)
    scores = bundle["benchmark"]["scores"]
    mean, coverage = scores["mean_reward"]["value"], scores["coverage"]
    reward = "no reward" if mean is None else f"mean reward {mean:.4f}"
    covered = f"coverage {coverage['value'] or 0:.1%} ({coverage['scored']:,} of {coverage['total']:,})"
    amounts = f"{counted(len(parts), 'part')}, {counted(bundle['n_results'], 'step')}"
    echo(f"Wrote {paths['bundle']}: {amounts}, {reward}, {covered}")
    missing = missing_steps(parts, bundle)
    for sentence in missing:
        echo(f"Warning: {bundle['benchmark']['name']}: {sentence}", err=True)
    return not missing


def eval_push(
    run: RunArgument,
    name: Annotated[
        str | None,
        option(
            "Dataset name, owner/name (default: made from environment and model).",
            "--hf-hub-dataset-name",
            "-D",
            metavar="NAME",
        ),
    ] = None,
    is_public: Annotated[bool, option("Make a new dataset public.", "--public")] = False,
    to: Annotated[
        str | None, option("Push to this folder or object store, not to the hub.", metavar="LOCATION")
    ] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push a run to the Hugging Face Hub as a private dataset; with --to, push it to a folder or object store.

    The dataset has a card, and pushing again replaces the dataset. The token is HF_TOKEN, or the token of 'hf auth
    login'. With --to, the run is published there together with its run directory, so that others can resume the run.

    Example: nightjar eval push 0a1b2c -D my-team/gsm8k-nightly
    """
    if to and (name or is_public):
        raise typer.BadParameter("--to excludes --hf-hub-dataset-name and --public, which apply to the hub")
    found = find_stored_run(run, warehouse=warehouse)
    if to:
        target = Warehouse(to)
        moved = push_to(found, target)
        _show_moved(moved, f"Pushed run {moved.run_id} to {target.location}", as_json)
        return
    url = push(found.directory, name, is_public=is_public)
    if as_json:
        print_json({"run_id": found.run_id, "url": url})
    else:
        echo(f"Pushed run {found.run_id}: {url}")


def eval_pull(
    run: Annotated[str, argument("ID of a run in --from, or the beginning of the ID.", metavar="RUN")],
    source: Annotated[str, option("Folder or object store that holds the run.", "--from", metavar="LOCATION")],
    output_dir: OutputDirOption = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pull a run that was pushed with 'eval push --to', or that is in another warehouse.

    The run is added to your own warehouse. If the run directory was pushed, it is copied to ./outputs, so that --resume
    can resume the run. Pulling again changes nothing, unless the run has grown.

    Example: nightjar eval pull 0a1b2c --from s3://team/exchange
    """
    found = find_stored_run(run, warehouse=source)
    moved = pull_from(found, Warehouse(resolve_warehouse(warehouse)), output_dir)
    _show_moved(moved, f"Pulled run {moved.run_id} from {found.warehouse.location}", as_json)


def _show_moved(moved: Moved, done: str, as_json: bool) -> None:
    if as_json:
        print_json({"run_id": moved.run_id, "path": moved.path and str(moved.path), "is_new": moved.is_new})
        return
    echo(done if moved.is_new else f"{done}: it was there already, nothing was changed")
    if moved.path is None:
        echo("Only the results were moved, because the run directory is missing", err=True)
