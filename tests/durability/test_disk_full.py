"""A full disk stops the run with one line; with room again, a resume completes it."""

import pytest

from nightjar.model_server import Faults

pytestmark = pytest.mark.long

EXAMPLES, ROLLOUTS, CONCURRENCY = 100, 300, 8
SETTINGS = ("-n", EXAMPLES, "-r", 3, "-c", CONCURRENCY)


@pytest.fixture
def small_disk(mount):
    """A disk of 256 kB, and a function that makes it larger."""
    return mount("size=256k"), lambda: mount("remount,size=8m")


def test_the_disk_of_the_run_directory_fills_up(nightjar, serve, small_disk):
    disk, grow = small_disk
    server = serve()
    ended = nightjar.eval("arithmetic", *SETTINGS, "-o", disk, server=server)
    line = ended.error
    assert "No space left on device" in line
    assert str(disk) in line
    run = nightjar.run
    assert 100 < len(run.attempts) < ROLLOUTS
    for name in ("attempts.jsonl", "results.jsonl"):
        assert run.content[name].endswith(b"\n"), "no line is torn"
    assert all(row["reward"] == 1.0 for row in run.results)
    assert run.metadata["status"] == "failed"
    assert run.metadata["scored"] == len(run.results)
    checksums = {"attempts.checksums", "results.checksums"}
    assert set(run.content) == {"attempts.jsonl", "results.jsonl", "config.json", "metadata.json", *checksums}
    # Without more room, trying again changes nothing.
    again = nightjar.eval("arithmetic", *SETTINGS, "-o", disk, "--resume", server=server)
    assert "No space left on device" in again.error
    assert run.metadata["status"] == "failed"
    grow()
    assert nightjar.eval("arithmetic", *SETTINGS, "-o", disk, "--resume", server=server).code == 0
    assert run.metadata["status"] == "completed"
    assert run.metadata["scored"] == ROLLOUTS
    assert 0 <= server.stats().received - ROLLOUTS <= 2 * CONCURRENCY
    assert nightjar.sql("SELECT status, scored FROM runs") == [("completed", ROLLOUTS)]


def test_no_room_to_put_the_results_in_order(nightjar, serve, mount):
    """To put them in order takes their size once more, for a moment."""
    server = serve(faults=Faults(jitter_ms=20))
    assert nightjar.eval("arithmetic", *SETTINGS, server=server).code == 0
    sizes = {name: len(content) for name, content in nightjar.run.content.items()}
    disk = mount(f"size={sum(sizes.values()) + sizes['results.jsonl'] // 2}")
    ended = nightjar.eval("arithmetic", *SETTINGS, "-o", disk, server=server)
    assert ended.error.endswith("results.jsonl': No space left on device")
    run = nightjar.runs[-1]
    assert (run.metadata["status"], run.metadata["scored"]) == ("failed", ROLLOUTS)
    mount("remount,size=8m")
    assert nightjar.eval("arithmetic", *SETTINGS, "-o", disk, "--resume", server=server).code == 0
    assert run.metadata["status"] == "completed"
    assert [(row["example_id"], row["rollout_index"]) for row in run.results] == [
        (example_id, index) for example_id in range(EXAMPLES) for index in range(3)
    ]
    assert server.stats().received == 2 * ROLLOUTS


def test_the_disk_of_the_warehouse_is_full(nightjar, nightjar_in, serve, small_disk):
    disk, grow = small_disk
    server = serve()
    settings = ("-n", 20, "--warehouse", disk / "warehouse")
    (disk / "filler").write_bytes(b"x" * 250_000)
    ended = nightjar.eval("arithmetic", *settings, server=server)
    assert (
        f"nightjar publish {nightjar.run.path.relative_to(nightjar.folder)} --warehouse {disk}/warehouse" in ended.error
    )
    assert nightjar.run.metadata["status"] == "completed"
    grow()
    assert nightjar.eval("arithmetic", *settings, "--resume", server=server).code == 0
    assert server.stats().received == 60
    published = nightjar_in(nightjar.folder, warehouse=disk / "warehouse")
    assert published.sql("SELECT status, scored FROM runs") == [("completed", 60)]
