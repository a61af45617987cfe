"""Nights that are written down as running, as their server knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nightjar.errors import ServiceError
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.server import find_prefect_api
from nightjar.warehouse.storage.nights import Night

_ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def as_it_stands(nights: Sequence[Night]) -> list[Night]:
    """Returns nights; of one whose flow run has ended without a verdict, the line says so, with what to do."""
    if all(one.verdict != "running" for one in nights):
        return list(nights)
    try:
        url = find_prefect_api()
        return list(nights) if url is None else [_as_it_stands(PrefectApi(url), one) for one in nights]
    except ServiceError:
        return list(nights)


def _as_it_stands(api: PrefectApi, night: Night) -> Night:
    if night.verdict != "running" or night.flow_run_id is None:
        return night
    known = api.get(f"/flow_runs/{night.flow_run_id}")
    if known is None or known["state_type"] not in _ENDED:
        return night
    state = known["state_name"].lower()
    line = f"its flow run is {state} without a verdict. Retry does the rest, or the same night started again"
    return replace(night, line=line)
