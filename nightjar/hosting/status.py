"""The status of ``nightjar up`` and its server, for ``nightjar status``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nightjar.core.home import home
from nightjar.core.live_processes import is_running
from nightjar.hosting.active_runs import ActiveFlowRun, active_flow_runs
from nightjar.hosting.server import FLOWS, MOST_RUNS, POOL, PrefectApi, configured_prefect_api, page_of, prefect_answers
from nightjar.hosting.state import read_state, supervisor_pid


@dataclass(frozen=True)
class ServiceStatus:
    name: str
    pid: int
    is_running: bool
    restarts: int


@dataclass(frozen=True)
class WorkPoolStatus:
    """A work pool of Nightjar's deployments. If it is not ready, it has no worker.

    If there is no such pool, ``type`` and ``status`` are None.
    """

    name: str
    type: str | None
    status: str | None


@dataclass(frozen=True)
class ScheduleStatus:
    """A schedule of a ``flow/deployment``. ``when`` is like ``cron 0 2 * * *``.

    The schedule is active if neither the schedule nor the deployment is paused.
    """

    id: str
    deployment: str
    when: str
    is_active: bool
    next_at: datetime | None


@dataclass(frozen=True)
class DeploymentStatus:
    """A deployment. Its name is ``flow/deployment``. If the runs set the folder, ``folder`` is None.

    If ``concurrency_limit`` is None, concurrent runs are not limited.
    """

    name: str
    folder: str | None
    is_paused: bool
    concurrency_limit: int | None


@dataclass(frozen=True)
class RunStatus:
    """A run in progress. ``process`` is ``host:pid``; ``page`` is the address of the run's page in the UI."""

    id: str
    name: str
    state: str
    since: datetime
    process: str | None
    page: str


@dataclass(frozen=True)
class Status:
    """The status of ``nightjar up`` and its server. Parts that are not configured or not running are None.

    If there are services, the first of ``work_pools`` is theirs. ``services`` may be left behind by a killed
    ``nightjar up``. ``log`` has restarts of services and lost runs.
    """

    api_url: str | None
    is_answering: bool
    supervisor_pid: int | None
    view_url: str | None
    services: list[ServiceStatus]
    work_pools: list[WorkPoolStatus]
    deployments: list[DeploymentStatus]
    schedules: list[ScheduleStatus]
    runs: list[RunStatus]
    log: str

    @property
    def is_starting(self) -> bool:
        return self.supervisor_pid is not None and not self.services

    @property
    def are_running(self) -> bool:
        return all(service.is_running for service in self.services)


def read_status() -> Status:
    pid = supervisor_pid()
    state = read_state()
    if state and pid is None and not prefect_answers(state.api_url):
        state = None  # left behind by a killed supervisor, and the server is gone too
    services = [] if state is None else list(map(_service, state.services, state.services.values()))
    own = [state.work_pool] if state else []
    api_url = state.api_url if state else configured_prefect_api()
    is_answering = api_url is not None and prefect_answers(api_url)
    known = _of_server(PrefectApi(api_url), own) if api_url and is_answering else ([], [], [], [])
    view_url = state.view_url if state else None
    return Status(api_url, is_answering, pid, view_url, services, *known, log=str(home() / "up.log"))


def _service(name: str, known: tuple[int, int]) -> ServiceStatus:
    pid, restarts = known
    return ServiceStatus(name, pid, is_running(pid), restarts)


def _of_server(
    api: PrefectApi, own: list[str]
) -> tuple[list[WorkPoolStatus], list[DeploymentStatus], list[ScheduleStatus], list[RunStatus]]:
    flows = {"name": {"any_": list(FLOWS)}}
    names = {flow["id"]: flow["name"] for flow in api.post("/flows/filter", {"flows": flows}) or ()}
    asked = {"flows": flows, "sort": "NAME_ASC", "limit": MOST_RUNS}
    found = api.post("/deployments/filter", asked) or ()
    found = [{**each, "name": f"{names[each['flow_id']]}/{each['name']}"} for each in found]
    runs = [_run(run, api.url) for run in active_flow_runs(api)]
    pools = dict.fromkeys([*own, *filter(None, (each["work_pool_name"] for each in found))] or [POOL])
    return [_work_pool(api, name) for name in pools], list(map(_deployment, found)), _schedules(api, found), runs


def _work_pool(api: PrefectApi, name: str) -> WorkPoolStatus:
    pool = api.get(f"/work_pools/{name}") or {}
    return WorkPoolStatus(name, pool.get("type"), pool.get("status"))


def _deployment(record: Mapping[str, Any]) -> DeploymentStatus:
    limit = record.get("global_concurrency_limit") or {}
    folder = (record["job_variables"] or {}).get("working_dir")
    return DeploymentStatus(record["name"], folder, record["paused"], limit.get("limit"))


def _schedules(api: PrefectApi, deployments: list[dict[str, Any]]) -> list[ScheduleStatus]:
    next_at = _next_times(api)
    return [
        ScheduleStatus(
            schedule["id"],
            deployment["name"],
            _when(schedule["schedule"]),
            schedule["active"] and not deployment["paused"],
            next_at.get(schedule["id"]),
        )
        for deployment in deployments
        for schedule in deployment["schedules"]
    ]


def _next_times(api: PrefectApi) -> dict[str, datetime]:
    times: dict[str, datetime] = {}
    for run in api.flow_runs(states=("SCHEDULED",), sort="EXPECTED_START_TIME_ASC"):
        made_by = run["created_by"] or {}
        if made_by.get("type") == "SCHEDULE":
            times.setdefault(made_by["id"], datetime.fromisoformat(run["expected_start_time"]))
    return times


def _when(schedule: Mapping[str, Any]) -> str:
    zone = f", {schedule['timezone']}" if schedule.get("timezone") else ""
    if "cron" in schedule:
        return f"cron {schedule['cron']}{zone}"
    if "interval" in schedule:
        return f"every {schedule['interval']:g} s{zone}"
    return f"{schedule['rrule']}{zone}"


def _run(run: ActiveFlowRun, api_url: str) -> RunStatus:
    process = ":".join(filter(None, [run.host, str(run.pid or "")])) or None
    return RunStatus(run.id, run.name, run.state, run.since, process, page_of(run.id, api_url))
