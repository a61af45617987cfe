"""Runs that are stopped, in the UI and on a terminal: state, metadata and SQL agree, and what is finished is kept."""

import asyncio
import json
import logging
import signal
from contextlib import suppress
from datetime import timedelta

import pytest
from local_services import Services, wait_for_answers
from pydantic import TypeAdapter
from waiting import until

from nightjar.core.worker_delays import CANCEL_SECONDS
from nightjar.hosting.server import SETTINGS
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

ROLLOUTS = 60
SLOW = Faults(latency_ms=300)


def metadata_of(folder, model):
    [path] = folder.glob(f"outputs/evals/arithmetic--{model}/*/metadata.json")
    return json.loads(path.read_bytes())


def in_sql(folder, model):
    question = "SELECT status, scored FROM runs WHERE model = $model"
    return Warehouse(folder / "outputs/warehouse").query(question, {"model": model}).rows


def test_retry_after_a_cancel_runs_only_the_rest(services):
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        parameters = {
            "env_id": "arithmetic", "model": "stopped-in-ui", "base_url": server.url, "num_examples": ROLLOUTS,
            "rollouts_per_example": 1, "max_concurrent": 2,
        }  # fmt: skip
        created = services.start("evaluate", parameters)
        wait_for_answers(server, 6)
        services.cancel(created)
        assert services.end_of(created) == "CANCELLED"
        answered = server.stats().answered
        metadata = metadata_of(services.folder, "stopped-in-ui")
        assert metadata["status"] == "cancelled"
        assert 4 <= metadata["scored"] <= answered < ROLLOUTS
        assert in_sql(services.folder, "stopped-in-ui") == [("cancelled", metadata["scored"])]
        until(lambda: "Cancelled by SIGTERM" in services.log_of(created))
        chosen = {"logs": {"flow_run_id": {"any_": [created]}, "level": {"ge_": logging.ERROR}}}
        assert services.call("POST", "/logs/filter", chosen) == []
        services.wait_for_worker(created)
        message = services.flow_run(created)["state"]["message"]
        assert message.startswith("Cancelled by SIGTERM\n"), "and not as Prefect's worker recorded it"
        assert created not in asyncio.run(cancels_sent_to_a_new_worker(services))

        services.retry(created)
        assert services.end_of(created) == "COMPLETED"
        assert server.stats().answered <= ROLLOUTS + 2, "only what was in flight is asked again"
    assert in_sql(services.folder, "stopped-in-ui") == [("completed", ROLLOUTS)]


def test_the_server_repeats_a_cancel_for_less_time_than_a_retry_waits():
    repeated = TypeAdapter(timedelta).validate_python(SETTINGS["PREFECT_SERVER_EVENTS_MAXIMUM_WEBSOCKET_BACKFILL"])
    assert timedelta(seconds=CANCEL_SECONDS) >= 5 * repeated


async def cancels_sent_to_a_new_worker(services):
    """Returns the runs whose cancel a worker receives from the server when it starts to watch a run."""
    from prefect.events.clients import PrefectEventSubscriber
    from prefect.events.filters import EventFilter, EventNameFilter

    cancels = EventFilter(event=EventNameFilter(name=["prefect.flow-run.Cancelling"]))
    sent = set()
    async with PrefectEventSubscriber(services.api, filter=cancels) as events:
        with suppress(TimeoutError):
            async with asyncio.timeout(2):
                async for event in events:
                    sent.add(event.resource.id.removeprefix("prefect.flow-run."))
    return sent


def test_ctrl_c_ends_a_flow_run_on_a_terminal(services, tmp_path):
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        size = ("-n", str(ROLLOUTS), "-r", "1", "-c", "2")
        process = services.begin("eval", "run", "arithmetic", "-m", "typed", "-b", server.url, *size, folder=tmp_path)
        wait_for_answers(server, 6)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not [line for line in errors.splitlines() if "ERROR" in line or "Traceback" in line]
    metadata = metadata_of(tmp_path, "typed")
    assert metadata["status"] == "cancelled"
    assert in_sql(tmp_path, "typed") == [("cancelled", metadata["scored"])]
    assert services.flow_run(metadata["flow_run_id"])["state_type"] == "CANCELLED"


def test_the_time_limit_ends_a_flow_run(services, tmp_path):
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        limit = ("-n", str(ROLLOUTS), "-r", "1", "-c", "2", "--timeout-minutes", "0.03")
        ended = services.run("eval", "run", "arithmetic", "-m", "limited", "-b", server.url, *limit, folder=tmp_path)
    assert ended.returncode == 1
    assert "Error: Stopped after 0.03 minutes (timeout_minutes)" in ended.stderr
    metadata = metadata_of(tmp_path, "limited")
    assert (metadata["status"], in_sql(tmp_path, "limited")) == ("timed_out", [("timed_out", metadata["scored"])])
    flow_run = services.flow_run(metadata["flow_run_id"])
    assert (flow_run["state_type"], flow_run["state_name"]) == ("FAILED", "TimedOut")


def test_a_temporary_server_ends_with_its_killed_command(services, own_folder):
    own = Services(own_folder)  # of which nothing is started but the command
    del own.environment["PREFECT_API_URL"]
    (own_folder / "prefect").mkdir()
    services.copy_database(own_folder / "prefect/prefect.db")  # a new one takes 10 s
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        process = own.begin("eval", "run", "arithmetic", "-m", "killed", "-b", server.url, "-n", "500", "--prefect")
        wait_for_answers(server, 2)
        assert len(own.processes()) > 1
        process.kill()
        process.communicate()
    until(lambda: not own.processes(), told=own.processes)
