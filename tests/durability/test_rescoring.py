"""Rescoring calls no model, and the old run stays."""

import json
import re
import shlex

import pytest

from nightjar.model_server import Faults, FixedAnswer

pytestmark = pytest.mark.long


def test_a_judge_without_a_verdict_is_looked_at_and_asked_again(nightjar, serve):
    (nightjar.folder / "rows.jsonl").write_text('{"problem": "Who won?", "answer": "Ann", "metadata": "{}"}')
    judge = {"judge_model": "judge", "judge_base_url": serve(FixedAnswer("banana")).url}
    arguments = json.dumps({"dataset": "rows.jsonl", **judge})
    ended = nightjar.eval("simpleqa", "-a", arguments, "-n", 1, "-r", 2, server=serve(FixedAnswer("Ann")))
    [failed] = nightjar.runs
    assert "What to do (judge): " in ended.stderr
    [command] = re.findall(r"Next: +nightjar (.*)", ended.stdout)
    assert re.fullmatch(f"eval rescore outputs/evals/.*{failed.metadata['run_id']}", command)
    ended = nightjar.start(*command.split()).wait()
    assert ended.code == 1
    [command] = re.findall(r"Next: +nightjar (.*)", ended.stdout)
    assert command.startswith(f"eval rescore {failed.metadata['run_id']} "), "the first run lacks no rollout"
    judged = json.dumps({"judge_base_url": serve(FixedAnswer("A")).url})
    assert nightjar.start(*shlex.split(command), "-a", judged).wait().code == 0
    assert [run.metadata["avg_reward"] for run in nightjar.runs] == [None, None, 1.0]


ENVIRONMENT = """
import nightjar as vf
WORTH = 1.0

def exact(completion, answer):
    return WORTH * (answer in completion[-1]["content"])

def load_environment(worth=1.0):
    global WORTH
    WORTH = worth
    rows = [{{"question": f"What is {{n}} + {{n}}?", "answer": str({answer})}} for n in range(10)]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric([exact]))
"""


def _rewards(run):
    return [row["reward"] for row in run.results]


def test_a_mended_answer_is_scored_with_and_a_changed_question_is_refused(nightjar, serve):
    nightjar.write_environment("sums", ENVIRONMENT.format(answer="n + n + 1"))
    server = serve()
    assert nightjar.eval("sums", "-n", -1, "-r", 2, server=server).code == 0
    assert set(_rewards(nightjar.run)) == {0.0}
    nightjar.write_environment("sums", ENVIRONMENT.format(answer="n + n"))
    ended = nightjar.start("eval", "rescore", nightjar.run, "--env-args", '{"worth": 0.5}').wait().ok()
    assert "10 examples have a new answer or info" in ended.stderr
    assert _rewards(nightjar.runs[1]) == [0.5] * 20
    assert server.stats().received == 20
    nightjar.write_environment("sums", ENVIRONMENT.format(answer="n + n").replace("What is", "How much is"))
    assert "10 examples of run" in nightjar.start("eval", "rescore", nightjar.runs[0]).wait().error
    assert len(nightjar.runs) == 2


def test_what_failed_stays_failed_and_a_rescored_run_asks_no_model_in_a_resume_either(nightjar, serve):
    server = serve(faults=Faults(rate_malformed=0.3, seed=3))
    assert nightjar.eval("arithmetic", "-n", 10, "-r", 2, "--request-retries", 0, server=server).code == 1
    [first] = nightjar.runs
    received = server.stats().received
    ended = nightjar.start("eval", "rescore", first).wait()
    assert ended.code == 1
    [_, second] = nightjar.runs
    assert f"resume the original run {first.metadata['run_id']}, and score it again" in ended.stdout
    assert [row["error"] for row in second.results] == [row["error"] for row in first.results]
    assert _rewards(second) == _rewards(first)
    assert server.stats().received == received
    assert nightjar.sql("SELECT min(input_tokens) > 0 FROM runs") == [(True,)]
    assert "rescored_from" in nightjar.eval("arithmetic", "-n", 10, "-r", 2, "--resume", second, server=server).error
    assert server.stats().received == received


SCORED_BY = """
from nightjar.compat.nemo import benchmark, scorer
@benchmark(name="sums", dataset=[{{"n": n, "target": str(2 * n)}} for n in range(8)], prompt="What is {{n}} + {{n}}?")
@scorer
def check(sample):
    if sample.metadata["n"] in {raises}:
        raise RuntimeError("not so")
    return {{"correct": {worth} * (sample.target in sample.response)}}
"""


def test_a_resume_with_a_changed_scorer_rescores_everything_and_repeats_no_request(nightjar, serve):
    bench = nightjar.folder / "bench.py"
    bench.write_text(SCORED_BY.format(worth=1.0, raises=()))
    server = serve(faults=Faults(latency_ms=100))
    asked = ("bench.py:sums", "-n", -1, "-r", 2)
    command = nightjar.start_eval(*asked, "-c", 2, server=server)
    command.wait_until(lambda: nightjar.runs and nightjar.run.count_lines("results.jsonl") >= 5)
    command.kill()
    assert 1.0 in _rewards(nightjar.run)
    generated = nightjar.run.count_lines("attempts.jsonl")
    bench.write_text(SCORED_BY.format(worth=0.75, raises=(3,)))  # another scorer, which raises for one example
    received = server.stats().received
    ended = nightjar.eval(*asked, "--resume", "--max-retries", 0, server=server)
    assert (ended.code, _rewards(nightjar.run).count(0.75)) == (1, 14)
    assert "has changed since run" in ended.stderr
    assert server.stats().received - received == 16 - generated
    bench.write_text(SCORED_BY.format(worth=0.5, raises=()))  # it is mended
    received = server.stats().received
    ended = nightjar.eval(*asked, "--resume", server=server)
    assert (ended.code, _rewards(nightjar.run)) == (0, [0.5] * 16)
    assert server.stats().received == received
    assert nightjar.sql("SELECT avg(reward), count(*) FROM rollouts") == [(0.5, 16)]


LOCKED = """
import threading
import nightjar as vf
class Locked(vf.SingleTurnEnv):
    async def setup_state(self, state):
        state["lock"] = threading.Lock()
        return await super().setup_state(state)

def right(completion, answer):
    return {worth} * (answer in completion[-1]["content"])

def load_environment():
    rows = [{{"question": f"What is {{n}} + {{n}}?", "answer": str(n + n)}} for n in range(4)]
    return Locked(dataset=rows, rubric=vf.Rubric([right]))
"""


def test_a_run_with_unsaved_state_is_not_resumed_with_other_code(nightjar, serve):
    nightjar.write_environment("locked", LOCKED.format(worth=1.0))
    server = serve()
    assert nightjar.eval("locked", "-n", 2, "-r", 1, server=server).code == 0
    before = nightjar.run.content
    nightjar.write_environment("locked", LOCKED.format(worth=0.5))
    ended = nightjar.eval("locked", "-n", 4, "-r", 1, "--resume", server=server)
    assert (ended.code, "without state['lock']" in ended.errors[0]) == (1, True)
    assert f"nightjar eval rescore {nightjar.run.metadata['run_id']}" in ended.errors[0]
    assert (nightjar.run.content, server.stats().received) == (before, 2)
