"""A run in parts, each in its own process, equals the run of one process."""

import json
import signal

import pytest

from nightjar.model_server import Faults
from nightjar.sandboxes import LocalProvider

pytestmark = pytest.mark.long

TIMES = {"finished_at", "generation_ms", "timing", "latency_ms", "started_at", "date", "time", "time_ms",
         "published_at"}  # fmt: skip
OWN = {"run_id", "id", "created", "trajectory_id", "pace", "digest", "digests"}
TABLES = {
    "runs": "* EXCLUDE (run_id, version, started_at, finished_at, time_ms, run_dir, published_at, metadata, config)",
    "rollouts": "* EXCLUDE (run_id, generation_ms, scoring_ms, total_ms, trajectory, model_ms)",
    "attempts": "* EXCLUDE (run_id, finished_at, generation_ms)",
    "metrics": "* EXCLUDE (run_id)",
}


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if name not in TIMES | OWN}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def content(run):
    attempts = sorted(run.attempts, key=lambda row: (row["example_id"], row["rollout_index"], row["attempt"]))
    config = json.loads((run.path / "config.json").read_text())
    return without_times([run.metadata, config, run.results, attempts])


def rows(nightjar, run_id):
    return {
        table: nightjar.sql(f"SELECT {columns} FROM {table} WHERE run_id = '{run_id}' ORDER BY ALL")
        for table, columns in TABLES.items()
    }


def run_of(nightjar, run_id):
    [run] = [run for run in nightjar.runs if run.path.name == run_id]
    return run


def test_parts_are_the_run_of_one_process(nightjar, serve, opinionated):
    server = serve(opinionated)
    asked = ("-n", 10, "-r", 2, "--shuffle", "--seed", 7)
    assert nightjar.eval("arithmetic", *asked, server=server).code == 0
    [one] = nightjar.runs
    started = [
        nightjar.start_eval("arithmetic", *asked, "--part", f"0a1b.part-{number}-of-4", server=server)
        for number in (1, 2, 3, 4)
    ]
    assert [each.wait().code for each in started] == [0] * 4
    assert server.stats().received == 2 * 20, "no part asked what another asked"
    joined = run_of(nightjar, "0a1b")
    assert content(joined) == content(one)
    assert rows(nightjar, "0a1b") == rows(nightjar, one.metadata["run_id"])
    assert nightjar.sql("SELECT count(*), count(part_of) FROM runs") == [(2, 0)]
    assert nightjar.sql("SELECT count(*) FROM rollouts") == [(40,)]
    before, files = joined.content, sorted((nightjar.folder / "outputs/warehouse").rglob("*.json"))
    again = nightjar.eval("arithmetic", *asked, "--part", "0a1b.part-2-of-4", server=server)
    assert (again.code, server.stats().received, joined.content) == (0, 40, before)
    assert sorted((nightjar.folder / "outputs/warehouse").rglob("*.json")) == files
    assert not [*(nightjar.folder / "outputs/warehouse/directories").iterdir()]
    assert sum("Joined:    Run 0a1b, completed: 20 of 20 rollouts scored" in each.stdout for each in started) >= 1


def test_a_part_is_resumed_on_another_machine(nightjar, nightjar_in, serve, opinionated, tmp_path_factory):
    server = serve(opinionated)
    asked = ("-n", 8, "-r", 2, "-c", 2, "--warehouse", nightjar.warehouse.folder)
    spent = nightjar.eval("arithmetic", *asked, "--part", "0a1b.part-1-of-2", "--max-total-tokens", 60, server=server)
    assert (spent.code, 0 < server.stats().received < 8) == (1, True)
    there = nightjar_in(tmp_path_factory.mktemp("there"))
    for number in (1, 2):
        assert there.eval("arithmetic", *asked, "--part", f"0a1b.part-{number}-of-2", server=server).code == 0
    assert server.stats().received == 16
    assert nightjar.sql("SELECT run_id, status, scored FROM runs") == [("0a1b", "completed", 16)]
    late = nightjar_in(tmp_path_factory.mktemp("late"))
    late = late.eval("arithmetic", *asked, "--part", "0a1b.part-2-of-2", server=server)
    assert "Run '0a1b' is complete" in late.stderr
    assert server.stats().received == 16


def test_a_part_that_was_killed_and_one_that_failed_are_done_again(nightjar, serve, opinionated):
    slow = serve(opinionated, faults=Faults(latency_ms=300))
    asked = ("-n", 20, "-r", 2, "-c", 4)
    killed = nightjar.start_eval("arithmetic", *asked, "--part", "0a1b.part-1-of-2", server=slow)
    killed.wait_until(lambda: nightjar.runs and nightjar.runs[0].count_lines("results.jsonl") > 3)
    killed.send(signal.SIGKILL)
    killed.wait()
    spent = nightjar.eval("arithmetic", *asked, "--part", "0a1b.part-2-of-2", "--max-total-tokens", 200, server=slow)
    assert (spent.code, "The budget is spent" in spent.stderr, "of 100 tokens" in spent.stderr) == (1, True, True)
    assert nightjar.sql("SELECT run_id, part_of FROM runs") == [("0a1b.part-2-of-2", "0a1b")]
    assert nightjar.sql("FROM finished_runs") == nightjar.sql("FROM history") == []
    nightjar.start("publish", run_of(nightjar, "0a1b.part-1-of-2")).wait().ok()
    [(status, scored)] = nightjar.sql("SELECT status, scored FROM runs WHERE run_id = '0a1b'")
    assert (status, 0 < scored < 20) == ("crashed", True)
    for number in (1, 2):
        assert nightjar.eval("arithmetic", *asked, "--part", f"0a1b.part-{number}-of-2", server=slow).code == 0
    assert nightjar.sql("SELECT run_id, status, scored FROM runs") == [("0a1b", "completed", 40)]
    assert slow.stats().received <= 40 + 4, "what was finished is not asked again"


def test_what_cannot_be_a_part_and_parts_of_other_settings_are_refused(nightjar, serve):
    server = serve()
    none_left = nightjar.eval("arithmetic", "-n", 2, "--part", "0a1b.part-1-of-3", server=server)
    assert "0a1b.part-1-of-3 has no example: the run has only 2" in none_left.error
    in_tables = nightjar.eval("arithmetic", "--part", "0a1b.part-1-of-2", "--warehouse", "duckdb:t.db", server=server)
    assert ("keeps tables" in in_tables.stderr, server.stats().received) == (True, 0)
    assert nightjar.eval("arithmetic", "-n", 4, "--part", "0a1b.part-1-of-2", server=server).code == 0
    ended = nightjar.eval("arithmetic", "-n", 4, "-T", 0.5, "--part", "0a1b.part-2-of-2", server=server)
    assert "sampling_args: {'temperature': 0.5} and {}" in ended.error
    assert nightjar.sql("SELECT run_id FROM runs ORDER BY run_id") == [("0a1b.part-1-of-2",), ("0a1b.part-2-of-2",)]


def test_a_joined_run_has_the_artifacts_of_all_parts(nightjar, serve, tmp_path):
    if problem := LocalProvider.problem():
        pytest.skip(problem)
    for name in ("ant", "bee"):
        files = {"task.toml": 'artifacts = ["/app/answer"]', "instruction.md": "Write an answer.",
                 "solution/solve.sh": f"echo {name} > /app/answer",
                 "tests/test.sh": "echo 1 > /logs/verifier/reward.txt"}  # fmt: skip
        for path, text in files.items():
            (tmp_path / "tasks" / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "tasks" / name / path).write_text(text)
    asked = (f"harbor://{tmp_path / 'tasks'}", "-n", -1, "-a", '{"agent": "oracle"}')
    server = serve()
    for number in (1, 2):
        assert nightjar.eval(*asked, "--part", f"0a1b.part-{number}-of-2", server=server).code == 0
    joined = run_of(nightjar, "0a1b")
    kept = {row["example_id"]: joined.path / row["artifacts"][0]["file"] for row in joined.results}
    assert {example: path.read_text() for example, path in kept.items()} == {0: "ant\n", 1: "bee\n"}
