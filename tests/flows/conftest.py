"""A real Prefect server with a worker, started once by ``nightjar up`` for all tests that ask for it."""

import functools
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from local_services import Services

os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")


@pytest.fixture(scope="session")
def services(tmp_path_factory):
    """What ``nightjar up`` starts, for all tests; ``nightjar down`` leaves nothing of it."""
    services = Services(tmp_path_factory.mktemp("services"), is_forking=True)
    try:
        up = services.up()
        assert up.returncode == 0, up.stderr
        assert f"http://127.0.0.1:{services.port}" in up.stdout
        services.fork()
        yield services
    finally:
        if services.forks:
            services.forks.close()
        down = services.run("down", "--yes")
    assert (down.returncode, down.stdout) == (0, "Stopped.\n")
    assert services.processes() == []
    assert services.run("down").stdout == "Nothing is running.\n"


@pytest.fixture(scope="session")
def prefect_server(services):
    """Makes flows of this process use the server of ``nightjar up``."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: services.api}):
        yield
        APILogWorker.instance().drain()
        EventsWorker.drain_all()


@pytest.fixture
def in_process(prefect_server):
    """Runs flows in this process; see ``in_process.py``, which imports Prefect."""
    import in_process

    return in_process


@pytest.fixture
def run_deployed(services, in_process, monkeypatch):
    """Runs a deployment with parameters in this process and in the folder of its services; returns the flow run."""
    monkeypatch.chdir(services.folder)
    return functools.partial(in_process.run_deployed, services)


@pytest.fixture
def two_deployments(monkeypatch):
    """Registers only the deployments of ``evaluate`` and ``benchmark``, where the others would be like them."""
    from nightjar.hosting import deployments

    chosen = [each for each in deployments.DEPLOYMENTS if each.flow.name in {"evaluate", "benchmark"}]
    monkeypatch.setattr(deployments, "DEPLOYMENTS", chosen)


@pytest.fixture(scope="module")
def prefect(prefect_server):
    import prefect

    return prefect


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Runs each test in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NIGHTJAR_WAREHOUSE", raising=False)
    return tmp_path
