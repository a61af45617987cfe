"""What looks after a warehouse, as Prefect tasks: examining, packing and pruning it."""

from __future__ import annotations

import asyncio
from typing import Any

from prefect import task
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.cache_policies import NO_CACHE

from nightjar.warehouse import pruning
from nightjar.warehouse.doctor import Diagnosis, Finding, diagnose
from nightjar.warehouse.pruning import Candidate, Criteria
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.store import Store
from nightjar.warehouse.writing.packing import RETIRED_FOR, pack_everything


@task(cache_policy=NO_CACHE, persist_result=False)
async def examine(store: Store, *, deep: bool) -> list[Finding]:
    """Examines a warehouse in a folder, shows in an artifact what it found, and returns what needs action."""
    if not isinstance(store, Folder):
        return []
    diagnosis = await asyncio.to_thread(diagnose, store, deep=deep)
    await acreate_markdown_artifact(_found(diagnosis), key="upkeep", description=diagnosis.location)
    return [finding for finding in diagnosis.findings if finding.needs_action]


@task(cache_policy=NO_CACHE, persist_result=False)
async def compact(store: Store) -> str:
    """Merges the small segments of a warehouse, and says how many there were and are."""
    before = len(store.catalog().needed)
    await asyncio.to_thread(pack_everything, store, RETIRED_FOR)
    await asyncio.to_thread(write_snapshot, store)
    return f"All is well; segments: {before:,} before, {len(store.catalog().needed):,} now"


@task(cache_policy=NO_CACHE, persist_result=False)
async def prune(store: Store, criteria: Criteria, *, dry_run: bool) -> int:
    """Removes the runs that meet criteria, unless it is only to be shown which; a table artifact lists them."""
    store.require()
    found = await asyncio.to_thread(pruning.candidates, store, criteria)
    if found and not dry_run:
        await asyncio.to_thread(pruning.prune, store, [each.run_id for each in found])
    about = f"{'Would go from' if dry_run else 'Removed from'} {store}"
    await acreate_table_artifact(table=[_row(each) for each in found], key="prune", description=about)
    return len(found)


def _row(one: Candidate) -> dict[str, Any]:
    return {**vars(one), "started_at": f"{one.started_at:%Y-%m-%d %H:%M}"}


def _found(diagnosis: Diagnosis) -> str:
    urgent = [each for each in diagnosis.findings if each.needs_action]
    others = [each for each in diagnosis.findings if not each.needs_action]
    held = ", ".join(f"{count:,} {noun}" for noun, count in vars(diagnosis.totals).items())
    lines = [f"# {f'{len(urgent):,} to act on' if urgent else 'All is well'}", f"`{diagnosis.location}` holds {held}."]
    for title, findings in (("Needs action", urgent), ("Good to know", others)):
        lines += [f"## {title}", *(f"- {each.what}\n  → `{each.remedy}`" for each in findings)] if findings else []
    return "\n\n".join(lines)
