"""A disk that fills up stops the run with one line; with room again, the run goes on where it stopped."""

import pytest

EXAMPLES, ROLLOUTS, CONCURRENCY = 200, 600, 8
SETTINGS = ("-n", EXAMPLES, "-r", 3, "-c", CONCURRENCY)


@pytest.fixture
def small_disk(mount):
    """A disk of 256 kB, and a function that makes it larger."""
    return mount("size=256k"), lambda: mount("remount,size=8m")


def test_the_disk_of_the_run_directory_fills_up(nightjar, serve, small_disk):
    disk, grow = small_disk
    server = serve()

    ended = nightjar.eval("arithmetic", *SETTINGS, "-o", disk, server=server)

    assert ended.code == 1
    [line] = ended.errors
    assert "No space left on device" in line
    assert str(disk) in line
    run = nightjar.run
    kept = len(run.attempts)
    assert 100 < kept < ROLLOUTS
    for name in ("attempts.jsonl", "results.jsonl"):
        assert run.content[name].endswith(b"\n"), "no line is torn"
    assert all(row["reward"] == 1.0 for row in run.results)
    assert set(run.content) == {"attempts.jsonl", "results.jsonl", "config.json", "metadata.json"}

    # Without more room, trying again changes nothing.
    again = nightjar.eval("arithmetic", *SETTINGS, "-o", disk, "--resume", server=server)
    assert again.code == 1
    [line] = again.errors
    assert "No space left on device" in line

    grow()
    ended = nightjar.eval("arithmetic", *SETTINGS, "-o", disk, "--resume", server=server)

    assert ended.code == 0
    assert run.metadata["scored"] == ROLLOUTS
    asked_twice = server.stats().received - ROLLOUTS
    print(f"{kept} attempts fitted; {asked_twice} of {ROLLOUTS} rollouts were asked twice")
    assert 0 <= asked_twice <= 2 * CONCURRENCY
    assert nightjar.sql("SELECT status, scored FROM runs") == [("completed", ROLLOUTS)]


def test_the_disk_of_the_warehouse_is_full(nightjar, nightjar_in, serve, small_disk):
    disk, grow = small_disk
    server = serve()
    settings = ("-n", 20, "--warehouse", disk / "warehouse")
    (disk / "filler").write_bytes(b"x" * 250_000)

    ended = nightjar.eval("arithmetic", *settings, server=server)

    assert ended.code == 1
    [line] = ended.errors
    assert str(nightjar.run.path.relative_to(nightjar.folder)) in line
    assert "'nightjar publish' with this path publishes them" in line
    assert nightjar.run.metadata["status"] == "completed"

    grow()
    assert nightjar.eval("arithmetic", *settings, "--resume", server=server).code == 0
    assert server.stats().received == 60
    published = nightjar_in(nightjar.folder, warehouse=disk / "warehouse")
    assert published.sql("SELECT status, scored FROM runs") == [("completed", 60)]
