"""Services that end by themselves are restarted after growing pauses; no Prefect."""

import pytest
from waiting import until

from nightjar.hosting.processes import Service


@pytest.fixture
def service(tmp_path):
    service = Service("The clock", tmp_path / "clock.log", ("timeit", "-n", "1", "-r", "1", "1 / 0"))
    yield service
    service.end()


@pytest.mark.slow
def test_a_service_that_ended_is_restarted_with_a_message(service):
    first = service.pid
    assert service.process.wait(60) == 1
    ended = service.revive()
    assert all(word in ended for word in ("exit code 1", " 1 s", str(service.log)))
    restarted = until(service.revive)
    assert f"process {service.pid}" in restarted
    assert (service.pid != first, service.restarts) == (True, 1)
    service.process.wait(60)
    assert " 2 s" in service.revive()


def test_a_restart_keeps_the_log_and_a_running_service_is_left_alone_until_it_is_ended(tmp_path):
    log = tmp_path / "log"
    log.write_text("why the one before crashed\n")
    service = Service("The clock", log, ("timeit", "-n", "1", "-r", "1", "print('now')"))
    assert service.process.wait(60) == 0
    assert log.read_text().startswith("why the one before crashed\nnow\n")
    service = Service("The sleeper", log, ("timeit", "import time; time.sleep(60)"))
    assert service.revive() is None
    service.end()
    assert service.has_ended()
