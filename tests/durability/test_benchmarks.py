"""Benchmarks that seed and verify: runs, resumes and SQL as of any environment."""

import subprocess
import sys
import textwrap

import pytest
from waiting import until

from nightjar.model_server import Faults

pytestmark = pytest.mark.long

BENCH = """
    from nemo_evaluator import benchmark, exact_match, scorer
    ROWS = [{"a": a, "answer": str(a + 1), "category": "odd" if a % 2 else "even"} for a in range(20)]

    @benchmark(name="sums", dataset=ROWS, prompt="What is {a} + 1?", target_field="answer")
    @scorer
    def check(sample):
        return exact_match(sample) | {"method": "exact"}
"""


def test_a_run_of_a_benchmark_written_for_nemo_evaluator_that_failed_in_part_is_resumed(nightjar, serve):
    (nightjar.folder / "bench.py").write_text(textwrap.dedent(BENCH))
    failing = serve(faults=Faults(rate_500=0.4, seed=1))
    command = ["eval", "run", "bench.py:sums", "-m", "m", "-b", failing.url, "-n", "20", "-r", "1", "--direct"]
    assert nightjar.start(*command, "--request-retries", "0").wait().code == 1
    scored = nightjar.sql("SELECT scored FROM runs")[0][0]
    assert 0 < scored < 20
    assert nightjar.start(*command, "--resume").wait().code == 0
    assert nightjar.sql("SELECT count(*) FROM attempts WHERE error IS NULL") == [(20,)]
    assert nightjar.sql("SELECT env_id, scored, failed FROM runs") == [("sums", 20, 0)]
    categories = "SELECT info->>'category' AS c, count(*) FROM rollouts GROUP BY c ORDER BY c"
    assert nightjar.sql(categories) == [("even", 10), ("odd", 10)]
    assert nightjar.sql("SELECT DISTINCT state->'scoring_details'->>'method' FROM rollouts") == [("exact",)]


PROGRAM = """
import asyncio, sys
from nightjar.compat.nemo import ChatSolver, EvalEnvironment, ModelClient, SeedResult, VerifyResult
from nightjar.compat.nemo import run_evaluation, write_all
class Sums(EvalEnvironment):
    name = "sums"
    def __len__(self):
        return 60
    async def seed(self, idx):
        return SeedResult(f"What is {idx} + 1?", str(idx + 1))
    async def verify(self, response, expected, sandbox=None, **metadata):
        return VerifyResult(float(expected in response))

solver = ChatSolver(ModelClient(sys.argv[1], "m"))
bundle = asyncio.run(run_evaluation(Sums(), solver, max_concurrent=4, step_log_dir="logs", resume=True))
write_all(bundle, "results")
print(bundle["n_results"], bundle["benchmark"]["scores"]["mean_reward"]["value"])
"""


def test_a_program_that_was_killed_asks_nothing_twice(tmp_path, serve):
    (tmp_path / "program.py").write_text(PROGRAM)
    server = serve(faults=Faults(latency_ms=50), keep_requests=500)
    command = [sys.executable, "program.py", server.url]
    killed = subprocess.Popen(command, cwd=tmp_path)
    try:
        until(lambda: [path for path in tmp_path.glob("logs/*/attempts.jsonl") if path.read_bytes().count(b"\n") >= 10])
    finally:
        killed.kill()
        killed.wait()
    [ledger] = tmp_path.glob("logs/*/attempts.jsonl")
    done = ledger.read_bytes().count(b"\n")
    before = len(server.requests)
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["60", "1.0"]
    assert len(server.requests) - before == 60 - done
    assert len((tmp_path / "results/results.jsonl").read_text().splitlines()) == 60
