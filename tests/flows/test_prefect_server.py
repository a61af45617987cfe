"""What ``nightjar.hosting.prefect_server`` changes of Prefect's server on SQLite, and which databases it refuses."""

import asyncio
import gc
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from subprocess import PIPE

from local_services import Services

WRITERS = 16


async def test_a_failed_cursor_is_freed_without_waiting_for_its_connection(tmp_path, monkeypatch):
    import aiosqlite

    from nightjar.hosting.prefect_server import OwnThreadCursor

    monkeypatch.setattr(aiosqlite.core, "Cursor", OwnThreadCursor)
    path = tmp_path / "some.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
        other.execute("INSERT INTO numbers VALUES (1)")
        async with aiosqlite.connect(path, timeout=10, isolation_level=None) as connection:
            failed = await connection.cursor()
            with suppress(sqlite3.IntegrityError):
                await failed.execute("INSERT INTO numbers VALUES (1)")
            await connection.execute_fetchall("SELECT 1")  # so that the thread forgets the cursor
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.ensure_future(connection.execute("INSERT INTO numbers VALUES (2)"))
            await asyncio.sleep(0.1)  # its thread waits for the other transaction now
            del failed
            gc.collect()  # without the class, this waits for the connection
            other.execute("COMMIT")
            await waiting  # raises an error after 10 s


async def test_writers_at_once_are_all_served(services):
    import httpx

    services.call("POST", "/work_pools/", {"name": "at-once", "type": "process"})
    flow_id = services.call("POST", "/flows/", {"name": "at-once"})["id"]
    deployment = {"name": "at-once", "flow_id": flow_id, "work_pool_name": "at-once"}
    codes = Counter()

    async def write(client, number):
        for again in range(4):
            tags = {"tags": [f"{number}-{again}"]}  # so that the deployment is read, compared and written
            codes[(await client.post("/deployments/", json=deployment | tags)).status_code] += 1

    async with httpx.AsyncClient(base_url=services.api, timeout=120) as client:
        await asyncio.gather(*(write(client, number) for number in range(WRITERS)))
    assert max(codes) < 400, codes


def test_a_queue_that_is_paused_and_resumed_reads_its_pool_within_the_transaction(services):
    services.call("POST", "/work_pools/", {"name": "paused", "type": "process"})
    services.call("POST", "/work_pools/paused/queues", {"name": "some"})
    for is_paused in (True, False):
        response = services.ask("PATCH", "/work_pools/paused/queues/some", {"is_paused": is_paused})
        assert response.status_code == 204


def test_other_databases_and_passwords_are_refused(fork, tmp_path):
    place = {"cwd": tmp_path, "env": Services(tmp_path).environment, "stderr": PIPE}
    for url, said in (
        ("mysql://ann@db/prefect", "--database-url must begin with postgresql://"),
        ("postgresql://ann:planted-0123@db/prefect", "--database-url holds a password"),
        ("postgresql://ann:$NO_SUCH_VARIABLE@db/prefect", "NO_SUCH_VARIABLE"),
    ):
        process = fork.nightjar("up", "--port", "1", "--database-url", url, **place)
        _, errors = process.communicate()
        [line] = errors.splitlines()
        assert (process.returncode, said in line, "planted" in line) == (1, True, False)
