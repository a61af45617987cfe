"""A process that ends by itself is started again, after a pause that grows; no Prefect."""

import time

import pytest

from nightjar.hosting.processes import Service


@pytest.fixture
def service(tmp_path):
    """One that ends at once."""
    service = Service("The clock", tmp_path / "clock.log", ("timeit", "-n", "1", "-r", "1", "1 / 0"))
    yield service
    service.end()


@pytest.mark.slow
def test_a_service_that_ended_is_restarted_with_a_message(service):
    first = service.pid
    assert service.process.wait(30) == 1
    assert service.revive() == (
        f"The clock ended with exit code 1, and is started again in 1 s. Its log is {service.log}"
    )
    assert service.revive() is None  # not yet
    time.sleep(1.0)
    assert service.revive() == f"The clock was started again, as process {service.pid}."
    assert service.pid != first
    assert service.restarts == 1
    service.process.wait(30)
    assert "started again in 2 s" in str(service.revive())


def test_a_restart_keeps_the_log(tmp_path):
    log = tmp_path / "log"
    log.write_text("why the one before crashed\n")
    service = Service("The clock", log, ("timeit", "-n", "1", "-r", "1", "print('now')"))
    assert service.process.wait(60) == 0
    assert log.read_text().startswith("why the one before crashed\nnow\n")


def test_a_running_service_is_left_alone_until_it_is_ended(tmp_path):
    service = Service("The sleeper", tmp_path / "log", ("timeit", "import time; time.sleep(60)"))
    assert service.revive() is None
    service.end()
    assert service.has_ended()
