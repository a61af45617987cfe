"""The files of NeMo Evaluator: ``nightjar eval merge``, and the bundles that ``eval run`` writes beside its runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.options import argument, option
from nightjar.cli.terminal import echo
from nightjar.compat.nemo.engine.artifacts import write_all
from nightjar.compat.nemo.engine.results import bundle_of_run
from nightjar.compat.nemo.engine.sharding import EvaluationPart, merged, missing_steps, part_of, shard_part
from nightjar.engine.runs import RunDirectory
from nightjar.errors import ConfigError
from nightjar.evaluation import Outcome
from nightjar.importers import FoundResults, find_results

_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


def write_bundles(outcomes: Iterable[Outcome | None], folder: Path | None) -> None:
    """Writes the results of runs as NeMo Evaluator does, in a folder per evaluation; nothing without a folder.

    A bundle is named after its run: after a resume it is replaced. The bundle of another run is moved into a subfolder.
    """
    for outcome in outcomes if folder else ():
        if outcome is not None and outcome.path.is_dir():
            label = _NOT_IN_NAMES.sub("-", outcome.metadata.name or outcome.metadata.env_id).strip("-.")
            run_id = f"eval-{outcome.run_id}-{label}"
            written = write_all({**bundle_of_run(outcome.path), "run_id": run_id}, Path(folder or "", label))
            echo(f"Bundle:    {written['bundle']}", err=True)


def eval_merge(
    directory: Annotated[Path, argument("Folder with shard_* of bundles, or run directories of a run.", metavar="DIR")],
    repeats: Annotated[
        int | None, option("Repeats of a problem (default: recorded).", "--repeats", "-n", min=1)
    ] = None,
    output: Annotated[Path | None, option("Output folder (default: DIR).", "--output-dir", "-o", metavar="DIR")] = None,
) -> None:
    """Merge the shards of an evaluation into one bundle with rows and statistics; the shards stay unchanged.

    All numbers are computed again from all rows: except for times, the result equals that of an undivided run. Exit
    code 1 if steps are missing.

    Example: nightjar eval merge ./eval_results
    """
    target = output or directory
    is_whole = True
    for folder, parts in _evaluations(directory).items():
        is_whole &= _merge(parts, target / folder, repeats)
    if not is_whole:
        raise typer.Exit(1)


def _evaluations(directory: Path) -> Mapping[Path, Sequence[EvaluationPart]]:
    found = list(find_results(directory))
    if sharded := [results for results in found if results.shards]:
        return {one.path.relative_to(directory): list(map(shard_part, one.shards)) for one in sharded}
    return {Path(): _in_order(directory, found)}


def _in_order(directory: Path, found: Sequence[FoundResults]) -> list[EvaluationPart]:
    """Returns run directories (later ones last) or bundles as parts, without the results of earlier merges."""
    apart = [one for one in found if one.path.resolve() != directory.resolve() and not _is_earlier_merge(one.path)]
    if not apart:
        raise ConfigError(f"{str(directory)!r} holds one run, and no parts to merge")
    return list(map(part_of, sorted(apart, key=_started)))


def _is_earlier_merge(path: Path) -> bool:
    return (path / f"{path.name}.json").is_file()


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
    echo(f"Wrote {paths['bundle']}: {len(parts)} parts, {bundle['n_results']:,} steps, {reward}, {covered}")
    missing = missing_steps(parts, bundle)
    for sentence in missing:
        echo(f"Warning: {bundle['benchmark']['name']}: {sentence}", err=True)
    return not missing
