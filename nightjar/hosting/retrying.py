"""Retries a run of a deployment as Prefect's UI does: the same flow run again, whose journal says what is owed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from nightjar.errors import ConfigError, ServiceError
from nightjar.evaluation.choosing import check_where
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.hosting.api import PrefectApi
from nightjar.hosting.server import page_of
from nightjar.runs import Whereabouts

_ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@dataclass(frozen=True)
class Retried:
    """A flow run that waits for a worker to do the rest of it.

    Attributes:
        flow_run_id, name: its own.
        was: the state that it had ended in, such as ``FAILED``.
        page: of it in Prefect's UI.
    """

    flow_run_id: str
    name: str
    was: str
    page: str


def flow_run_of(asked: str, api: PrefectApi) -> dict[str, Any] | None:
    """Returns what a server says of a flow run; None where it knows none of that id.

    Raises:
        ServiceError: it does not answer.
    """
    try:
        return api.get(f"/flow_runs/{UUID(asked)}")  # type: ignore[no-any-return]
    except ValueError:  # not an id of Prefect's
        return None


def retry(flow_run: dict[str, Any], api: PrefectApi, where: str = "", stored: StoredRun | None = None) -> Retried:
    """Has a worker do what is owed of a flow run.

    Args:
        flow_run: of a deployment, as the server says.
        api: the server.
        where: only the failed rollouts that meet this, see ``failed_where``; empty for all that is missing.
        stored: the run as it is stored, which ``where`` is checked of; None where it is not.

    Raises:
        ConfigError: the run is under way, or ``where`` is wrong or holds for none of its failed rollouts.
        ServiceError: the server does not answer, or refuses.
    """
    flow_run_id, name, state = flow_run["id"], flow_run["name"], flow_run["state_type"]
    if state not in _ENDED:
        raise ConfigError(f"Run {name!r} ({flow_run_id}) is {state}: it is under way, and is left alone")
    if where and stored:
        check_where(stored, where)
    parameters = {key: value for key, value in flow_run["parameters"].items() if key != "where"}
    wanted = {**parameters, "where": where} if where else parameters
    if wanted != flow_run["parameters"]:
        api.patch(f"/flow_runs/{flow_run_id}", {"parameters": wanted})
    again = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from 'nightjar eval retry'"}
    answer = api.post(f"/flow_runs/{flow_run_id}/set_state", {"state": again, "force": False})
    if answer is None or answer["status"] != "ACCEPT":
        raise ServiceError(f"Prefect's server at {api.url} does not let run {name!r} ({flow_run_id}) be retried")
    return Retried(flow_run_id, name, state, page_of(flow_run_id, api.url))


def run_dir_of(flow_run: dict[str, Any]) -> str:
    """Returns the run directory of a flow run that no worker can do the rest of: it is of no deployment.

    Raises:
        ConfigError: it has none, or that is on another machine or of another folder.
    """
    where, name = Whereabouts.from_labels(flow_run["labels"]), flow_run["name"]
    if where is None:
        raise ConfigError(f"Run {name!r} ({flow_run['id']}) ended before it had a run directory: start it again")
    if not (where.is_here and where.folder == Path.cwd()):
        raise ConfigError(
            f"Run {name!r} ({flow_run['id']}) was started from a command line on {where.host}, in {where.folder}. "
            f"There: nightjar eval retry {shlex.quote(where.run_dir)}"
        )
    return where.run_dir
