"""``nightjar warehouse doctor``: is the warehouse whole, and what is to be done?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.filesize import decimal as size

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.location import open_folder
from nightjar.cli.warehouse.output import number, print_json, print_labelled, print_some, progress_of
from nightjar.warehouse.doctor import Diagnosis, Finding, Fixed, diagnose
from nightjar.warehouse.doctor import fix as mend


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Read all data, not only what identifies it.")] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="First set damaged segments aside, publish their runs again from the run directories that are here, "
            "and remove leftovers.",
        ),
    ] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Examine the warehouse: whole, how large, what does not belong there, and what to do about it.

    Exit code 1 when something needs action. Nothing that may be needed is deleted: what is damaged is moved to the
    folder 'damaged' of the warehouse, and runs whose run directories are not here are named until they are published.

    Example: nightjar warehouse doctor --deep
    """
    folder = open_folder(warehouse)
    with progress_of("Reading segments") as progress:
        fixed = mend(folder, deep=deep, progress=progress) if fix else None
        diagnosis = diagnose(folder, deep=deep, progress=progress)
    if as_json:
        print_json({"is_clean": diagnosis.is_clean, **vars(diagnosis), **({"fixed": fixed} if fixed else {})})
    else:
        if fixed:
            _print_fixed(fixed)
        _print_diagnosis(diagnosis)
    if not diagnosis.is_clean:
        raise typer.Exit(1)


def _print_fixed(fixed: Fixed) -> None:
    for name, path in fixed.set_aside.items():
        kept = "; its examples are kept" if name in fixed.examples_kept else ""
        echo(f"Set aside: segment {name!r} is damaged; it is in {path} now{kept}")
    for run_id in fixed.published:
        echo(f"Published again: run {run_id!r}")
    for run_dir, why in fixed.failures.items():
        echo(f"Not read: {run_dir}: {why}", err=True)
    if fixed.set_aside:
        echo()


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    totals, sizes = diagnosis.totals, diagnosis.sizes
    counts = ", ".join(number(count, noun.removesuffix("s")) for noun, count in vars(totals).items())
    kinds = ", ".join(f"{kind} {size(count)}" for kind, count in sizes.kinds.items())
    print_labelled(
        {
            "Warehouse": diagnosis.location,
            "Holds": counts,
            "Segments": f"{diagnosis.segments:,}, of these {number(diagnosis.packs, 'pack')}",
            "Size": f"{size(sizes.live)} ({kinds})",
            "Retired": size(sizes.retired),
            "Leftovers": size(sizes.leftovers),
        }
    )
    _print_findings(diagnosis.findings)


def _print_findings(findings: list[Finding]) -> None:
    urgent = [finding for finding in findings if finding.needs_action]
    others = [finding for finding in findings if not finding.needs_action]
    for title, chosen in (("Needs action", urgent), ("Good to know", others)):
        if chosen:
            echo(f"\n{title}:")
            print_some([f"{finding.what}\n    → {finding.remedy}" for finding in chosen])
    echo(f"\n{number(len(urgent), 'finding')} to act on." if urgent else "\nAll is well.")
