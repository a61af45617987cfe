"""A run that is killed again and again loses nothing, pays for nothing twice, and ends as if nothing had happened."""

import random
from collections import Counter
from contextlib import contextmanager

import pytest
from filelock import FileLock

from nightjar.model_server import Faults

pytestmark = pytest.mark.long

EXAMPLES, ROLLOUTS_EACH, CONCURRENCY = 50, 3, 8
ROLLOUTS = EXAMPLES * ROLLOUTS_EACH
SETTINGS = ("-n", EXAMPLES, "-r", ROLLOUTS_EACH, "-c", CONCURRENCY)


def test_ten_kills_at_random_moments(nightjar, nightjar_in, serve, opinionated, tmp_path_factory):
    server = serve(opinionated, faults=Faults(latency_ms=15, jitter_ms=15))
    answered = sorted(random.Random(20).sample(range(1, ROLLOUTS), 8))
    moments = [
        (nightjar.folder / "outputs/evals").exists,  # hardly anything is there
        *[lambda count=count: _kept(nightjar) >= count for count in answered],
        lambda: _kept(nightjar) >= ROLLOUTS,  # the last answer is there, the aggregates are not
    ]

    with _publishing_waits(nightjar):  # so that no run is over before it is killed
        for number, moment in enumerate(moments):
            form = ["--resume", *nightjar.runs] if number % 2 else ["--resume"]
            command = nightjar.start_eval("arithmetic", *SETTINGS, *form, server=server)
            command.wait_until(moment)
            assert command.kill().code == -9
            assert len(nightjar.runs) <= 1
    assert nightjar.eval("arithmetic", *SETTINGS, "--resume", server=server).code == 0
    stats = server.stats()
    assert len(stats.questions) == EXAMPLES
    assert min(stats.questions.values()) >= ROLLOUTS_EACH
    asked_twice = stats.received - ROLLOUTS
    assert 0 <= asked_twice <= len(moments) * CONCURRENCY, "only what was in flight at a kill is asked again"

    run = nightjar.run
    attempts = Counter((row["example_id"], row["rollout_index"]) for row in run.attempts)
    assert len(attempts) == ROLLOUTS
    assert set(attempts.values()) == {1}, "what was finished before a kill is not asked again"

    undisturbed = nightjar_in(tmp_path_factory.mktemp("undisturbed"))
    assert undisturbed.eval("arithmetic", *SETTINGS, server=server).code == 0
    assert run.results_that_count == undisturbed.run.results_that_count
    for field in ("status", "avg_reward", "stderr", "avg_metrics", "pass_at_k", "pass_all_k", "usage", "coverage"):
        assert run.metadata[field] == undisturbed.run.metadata[field], field
    assert 0 < run.metadata["avg_reward"] < 1
    assert nightjar.sql("SELECT status, scored FROM runs") == [("completed", ROLLOUTS)]


def test_a_run_that_is_killed_before_it_is_published_or_has_metadata_is_not_run_again(nightjar, serve):
    server = serve()
    with _publishing_waits(nightjar):
        command = nightjar.start_eval("arithmetic", "-n", 20, server=server)
        command.wait_until(lambda: [*nightjar.folder.glob("outputs/evals/*/*/metadata.json")])
        command.wait_until(lambda: nightjar.run.metadata["status"] == "completed")
        command.kill()
    for _ in range(2):
        assert nightjar.eval("arithmetic", "-n", 20, "--resume", server=server).code == 0
        assert (server.stats().answered, nightjar.run.metadata["status"]) == (60, "completed")
        assert nightjar.sql("SELECT run_id, scored FROM runs") == [(nightjar.run.path.name, 60)]
        (nightjar.run.path / "metadata.json").unlink()


@contextmanager
def _publishing_waits(nightjar):
    """Keeps publishing from ending, as another process that writes the snapshot would."""
    nightjar.warehouse.folder.mkdir(parents=True)
    with FileLock(nightjar.warehouse.folder / "snapshot.lock"):
        yield


def _kept(nightjar):
    return sum(run.count_lines("attempts.jsonl") for run in nightjar.runs)
