"""``--cache``: the same request is not sent again, and no other is left out."""

import json
from collections import Counter

import pytest

from nightjar.model_server import Answer, Faults, last_user_text

pytestmark = pytest.mark.long

SETTINGS = ("-n", 5, "-r", 4, "--cache")


class Different:
    """Never answers the same twice; counts what it was asked."""

    def __init__(self):
        self.asked = Counter()

    def answer(self, messages):
        question = last_user_text(messages)
        self.asked[question] += 1
        return Answer(question=question, text=f"Answer {sum(self.asked.values())}: \\boxed{{{self.asked[question]}}}")


@pytest.fixture
def nightjar(nightjar):
    nightjar.env["NIGHTJAR_HOME"] = str(nightjar.folder / "home")
    return nightjar


def _said(run):
    return [row["completion"] for row in run.results]


def test_a_second_run_asks_nothing_and_its_four_rollouts_stay_four(nightjar, serve):
    server = serve(Different())
    assert nightjar.eval("arithmetic", *SETTINGS, server=server).code == 0
    assert nightjar.start("warehouse", "prices", "set", "local", "--input", 1, "--output", 1).wait().code == 0
    assert nightjar.eval("arithmetic", *SETTINGS, server=server).code == 0
    assert server.stats().received == 20
    first, second = nightjar.runs
    assert _said(second) == _said(first)
    assert len({json.dumps(said) for said in _said(first)}) == 20
    assert [row.get("cached_calls") for row in (*first.results, *second.results)] == [None] * 20 + [1] * 20
    paid, free = first.metadata["usage"], second.metadata["usage"]
    assert free == dict.fromkeys(paid, 0) | {f"cached_{name}": count for name, count in paid.items()}
    assert paid["input_tokens"] > 0
    tokens = sum(paid.values()) / 1e6
    for table in ("runs", "cost"):
        assert nightjar.sql(f"SELECT cost FROM {table} ORDER BY started_at") == [(pytest.approx(tokens),), (0,)]
    is_cached = "(trajectory->0->'response'->>'is_cached')::BOOLEAN"
    assert nightjar.sql(f"SELECT count(*) FROM rollouts WHERE {is_cached}") == [(20,)]


def test_a_changed_request_is_sent_and_more_rollouts_send_what_is_new(nightjar, serve):
    server = serve(Different())
    assert nightjar.eval("arithmetic", *SETTINGS, server=server).code == 0
    for number, changed in enumerate([("-T", 0.5), ("-m", "other"), ("-t", 9), ("-a", '{"seed": 9}')], start=2):
        assert nightjar.eval("arithmetic", *SETTINGS, *changed, server=server).code == 0
        assert server.stats().received == 20 * number, changed
    elsewhere = serve(Different())
    assert nightjar.eval("arithmetic", *SETTINGS, server=elsewhere).code == 0
    assert elsewhere.stats().received == 20
    assert nightjar.eval("arithmetic", "-n", 6, "-r", 5, "--cache", server=elsewhere).code == 0
    assert elsewhere.stats().received == 20 + 5 + 5


def test_without_the_flag_nothing_is_kept_or_taken_and_answers_can_be_cleared(nightjar, serve):
    server = serve(Different())
    for flags in ((), ("--cache",), ()):
        assert nightjar.eval("arithmetic", "-n", 2, "-r", 1, *flags, server=server).code == 0
    assert server.stats().received == 6
    content = b"".join(path.read_bytes() for path in (nightjar.folder / "home").glob("answers.sqlite*"))
    assert b"Answer 3" in content
    assert b"Compute the result" not in content, "the request itself is not on disk"
    assert sum(nightjar.json("cache", "info")["answers"].values()) == 2
    assert nightjar.json("cache", "clear")["removed"] == 2
    assert nightjar.json("cache", "info")["answers"] == {}
    assert nightjar.eval("arithmetic", "-n", 2, "-r", 1, "--cache", server=server).code == 0
    assert server.stats().received == 8


def test_an_error_is_never_kept(nightjar, serve):
    failing = serve(Different(), faults=Faults(rate_malformed=0.4, seed=1))
    settings = (*SETTINGS, "--request-retries", 0)
    assert nightjar.eval("arithmetic", *settings, server=failing).code == 1
    failed = nightjar.run.metadata["failed"]
    assert 0 < failed < 20
    assert sum(nightjar.json("cache", "info")["answers"].values()) == 20 - failed
    received = failing.stats().received
    nightjar.eval("arithmetic", *settings, server=failing)
    assert failing.stats().received == received + failed, "only failed requests are sent again"


def test_processes_that_write_at_once_and_one_that_is_killed_share_answers(nightjar, serve):
    server = serve(Different(), faults=Faults(latency_ms=20))
    settings = ("-n", 40, "-r", 2, "-c", 4, "--cache")
    killed = nightjar.start_eval("arithmetic", *settings, server=server)
    others = [nightjar.start_eval("arithmetic", *settings, server=server) for _ in range(2)]
    killed.wait_until(lambda: nightjar.runs and any(run.count_lines("attempts.jsonl") > 10 for run in nightjar.runs))
    killed.kill()
    assert [other.wait().code for other in others] == [0, 0]
    received = server.stats().received
    assert nightjar.eval("arithmetic", *settings, server=server).code == 0
    assert server.stats().received == received
    assert sum(nightjar.json("cache", "info")["answers"].values()) == 80


TALK = """
import nightjar as vf
class Talk(vf.MultiTurnEnv):
    async def env_response(self, messages, state):
        again = await self.get_model_response(state, "Say something.")
        once_more = await self.get_model_response(state, "Say something.")
        assert again.message.content != once_more.message.content
        return [{"role": "user", "content": f"You said {messages[-1]['content']}. And now?"}]

def load_environment():
    rows = [{"question": f"Question {n}", "answer": ""} for n in range(3)]
    return Talk(dataset=rows, max_turns=3, rubric=vf.Rubric([lambda completion: float(len(completion))]))
"""


def test_conversations_and_requests_that_a_rollout_repeats_are_kept_in_turn(nightjar, serve):
    nightjar.write_environment("talk", TALK)
    server = serve(Different())
    for _ in range(2):
        assert nightjar.eval("talk", "-n", 3, "-r", 2, "--cache", server=server).code == 0
    first, second = nightjar.runs
    assert server.stats().received == 6 * (3 + 2 * 2)
    assert _said(second) == _said(first)
    assert {row["cached_calls"] for row in second.results} == {3}
    assert second.metadata["usage"]["input_tokens"] == 0


def test_a_cache_that_is_broken_is_an_error_before_anything_is_asked(nightjar, serve):
    server = serve(Different())
    (nightjar.folder / "home").mkdir()
    (nightjar.folder / "home/answers.sqlite").write_bytes(b"no database" * 1000)
    assert "file is not a database" in nightjar.eval("arithmetic", *SETTINGS, server=server).error
    assert server.stats().received == 0
