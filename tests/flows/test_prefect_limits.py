"""Why runs do not share an endpoint by Prefect's concurrency limits: what becomes of held slots when its server stops.

Prefect 3.8.8, with both of its storages for leases. ``nightjar.flows.shared_limit`` says what follows from this.
"""

import os
import subprocess
import sys
import time

import httpx
import pytest
from local_services import free_port

pytestmark = pytest.mark.long

LIMIT, LEASE_SECONDS = 4, 60  # the shortest that the server accepts
HOLDER = f"""
import asyncio
from prefect.concurrency.asyncio import concurrency

async def hold():
    async with concurrency("shared", occupy={LIMIT}, lease_duration={LEASE_SECONDS}):
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(hold())
"""


class Server:
    """A Prefect server with a limit of four slots, and a process that holds them all."""

    def __init__(self, folder, storage):
        self._folder = folder
        self._port = free_port()
        self.api = f"http://127.0.0.1:{self._port}/api"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            "PREFECT_HOME": str(folder),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": f"prefect.server.concurrency.lease_storage.{storage}",
        }
        self.processes = []

    def start(self):
        server = self._run("-m", "prefect", "server", "start", "--port", str(self._port))
        for _ in range(360):
            try:
                if httpx.get(f"{self.api}/health", timeout=5).is_success:
                    return server
            except httpx.TransportError:
                time.sleep(0.5)
        raise AssertionError((self._folder / "log").read_text())

    def hold(self):
        httpx.post(f"{self.api}/v2/concurrency_limits/", json={"name": "shared", "limit": LIMIT}).raise_for_status()
        holder = self._run("-c", HOLDER)
        for _ in range(240):
            if self.active_slots() == LIMIT:
                return holder
            time.sleep(0.5)
        raise AssertionError((self._folder / "log").read_text())

    def active_slots(self):
        return int(httpx.get(f"{self.api}/v2/concurrency_limits/shared").json()["active_slots"])

    def ask(self):
        """Asks for all slots; returns the status of the answer, 423 where they are taken."""
        asked = {"names": ["shared"], "slots": LIMIT, "mode": "concurrency", "lease_duration": LEASE_SECONDS}
        return httpx.post(f"{self.api}/v2/concurrency_limits/increment-with-lease", json=asked).status_code

    def _run(self, *arguments):
        with (self._folder / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], env=self._environment, stdout=log, stderr=log, text=True
            )
        self.processes.append(process)
        return process


def kill(process):
    process.kill()
    process.wait()


@pytest.fixture
def server(tmp_path, request):
    server = Server(tmp_path, request.param)
    yield server
    for process in server.processes:
        kill(process)


@pytest.mark.parametrize("server", ["memory"], indirect=True)
def test_a_restarted_server_never_frees_the_slots_of_a_dead_run(server):
    process = server.start()
    holder = server.hold()
    kill(process)
    kill(holder)
    server.start()
    time.sleep(2 * LEASE_SECONDS)
    assert server.active_slots() == LIMIT
    assert server.ask() == httpx.codes.LOCKED


@pytest.mark.parametrize("server", ["filesystem"], indirect=True)
def test_leases_on_disk_expire_while_the_server_is_away_and_slots_are_assigned_twice(server):
    process = server.start()
    holder = server.hold()
    kill(process)
    time.sleep(LEASE_SECONDS + 5)
    server.start()
    for _ in range(60):
        if (status := server.ask()) == httpx.codes.OK:
            break
        time.sleep(1)
    assert status == httpx.codes.OK
    assert holder.poll() is None, "it goes on, with slots that another has"
