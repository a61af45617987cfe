"""Secrets of one hosted run: a block without a name, which the run reads and removes before it does anything else.

A label of the flow run says which block. Where a run never reads it, ``forget_old_secrets`` removes it: once the run
has ended, and after a day in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from nightjar.errors import ServiceError
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.hosted_runs import HostedRun, hosted_runs
from nightjar.secrecy import SECRETS_LABEL

_SLUG = "nightjar-environment-secrets"
_LONGEST = timedelta(days=1)
_SUBMITTED_WITHIN = timedelta(minutes=10)
_PAGE = 200


def keep_secrets(api: PrefectApi, values: Mapping[str, str]) -> dict[str, str]:
    """Keeps secrets for one run, and returns the label that this run is to have.

    Raises:
        ServiceError: the server does not answer, refuses, or does not know Nightjar's blocks.
    """
    kind = api.get(f"/block_types/slug/{_SLUG}")
    schemas = kind and api.post("/block_schemas/filter", {"block_schemas": {"block_type_id": {"any_": [kind["id"]]}}})
    if not schemas:
        raise ServiceError(
            f"The server at {api.url} does not know Nightjar's blocks, which keep secrets. Register them: "
            f"PREFECT_API_URL={api.url} prefect block register -m blocks"
        )
    block = {
        "block_type_id": kind["id"],
        "block_schema_id": max(schemas, key=lambda schema: str(schema["created"]))["id"],
        "data": {"values": dict(values)},
        "is_anonymous": True,
    }
    return {SECRETS_LABEL: api.post("/block_documents/", block)["id"]}


def forget_secrets(api: PrefectApi, run: HostedRun) -> None:
    """Removes the secrets of a run that will not read them any more; does nothing where it has none.

    Raises:
        ServiceError: the server does not answer, or refuses.
    """
    if SECRETS_LABEL in run.labels:
        api.delete(f"/block_documents/{run.labels[SECRETS_LABEL]}")


def forget_old_secrets(api: PrefectApi) -> int:
    """Removes the secrets of all runs that have ended, or did not begin within a day, and returns of how many.

    Raises:
        ServiceError: the server does not answer, or refuses.
    """
    chosen = {"is_anonymous": {"eq_": True}}
    found = api.post(
        "/block_documents/filter",
        {"block_documents": chosen, "block_types": {"slug": {"any_": [_SLUG]}}, "limit": _PAGE},
    )
    if not found:
        return 0
    waiting = {run.labels.get(SECRETS_LABEL) for run in hosted_runs(api) if not run.is_ended}
    old = [block["id"] for block in found if _age(block) > (_LONGEST if block["id"] in waiting else _SUBMITTED_WITHIN)]
    for block in old:
        api.delete(f"/block_documents/{block}")
    return len(old)


def _age(block: Mapping[str, Any]) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(block["created"])
