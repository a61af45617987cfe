"""Real input with a known result: what two real models answered to GSM8K's 1,319 questions.

Whether each of these answers is right has been published with them (openai/grade-school-math).
"""

import json
import re

import pytest

from nightjar.model_server import Recording

pytestmark = pytest.mark.long

PARSED_OTHERWISE = """
import re
import nightjar as vf
def first_number(text):
    found = re.findall(r"-?\\d+", text)
    return found[0] if found else ""

def same_text(completion, answer, parser):
    return float(parser.parse_answer(completion) == answer)

rubric = vf.Rubric([same_text], parser=vf.Parser(first_number))
"""


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("recording", "right"), [("recorded-6b-finetuning.jsonl", 286), ("recorded-6b-verification.jsonl", 515)]
)
def test_rewards_are_the_published_ones_and_others_with_another_parser(nightjar, serve, gsm8k, recording, right):
    server = serve(Recording.load(gsm8k / recording))
    arguments = json.dumps({"dataset": str(gsm8k / "test.jsonl"), "system_prompt": None})
    ended = nightjar.eval("gsm8k", "-a", arguments, "-n", -1, "-r", 1, "--json", server=server).ok()
    assert server.stats().answered == 1319
    published, [first] = read(gsm8k / recording), nightjar.runs
    is_correct = {row["question"].strip(): row["is_correct"] for row in published}
    assert len(first.results) == 1319
    for row in first.results:
        question = row["prompt"][-1]["content"].strip()
        assert row["reward"] == float(is_correct[question]), question
    metadata = first.metadata
    assert metadata["avg_reward"] == right / 1319
    assert [metadata[name] for name in ("status", "scored", "failed", "coverage")] == ["completed", 1319, 0, 1.0]
    printed = json.loads(ended.stdout)
    assert {name: printed[name] for name in metadata} == metadata
    counts = "avg(reward), count(*), count(*) FILTER (reward = 1)"
    assert nightjar.sql(f"SELECT {counts} FROM rollouts") == [(right / 1319, 1319, right)]
    assert nightjar.sql("SELECT avg_reward, coverage FROM leaderboard") == [(right / 1319, 1.0)]
    in_warehouse = nightjar.sql("SELECT trim(prompt->-1->>'content'), reward = 1 FROM rollouts")
    assert dict(in_warehouse) == is_correct
    if "finetuning" not in recording:
        return

    (nightjar.folder / "strict.py").write_text(PARSED_OTHERWISE)
    before, run_id = first.content, metadata["run_id"]
    nightjar.start("eval", "rescore", run_id, "--rubric", "strict.py:rubric").wait().ok()
    assert (server.stats().received, first.content) == (1319, before)
    answers = {
        row["question"].strip(): row["answer"].rpartition("####")[2].strip() for row in read(gsm8k / "test.jsonl")
    }
    numbers = [(row["question"].strip(), re.findall(r"-?[0-9]+", row["completion"])[:1]) for row in published]
    otherwise = sum([answers[question]] == number for question, number in numbers)
    assert 0 < otherwise < right, "the other parser makes a difference"
    metadata = nightjar.runs[1].metadata
    found = (metadata["avg_reward"], metadata["status"], metadata["scored"], metadata["rescored_from"])
    assert found == (pytest.approx(otherwise / 1319), "completed", 1319, run_id)
    rewards = nightjar.sql("SELECT rescored_from, avg_reward * rollouts FROM runs ORDER BY started_at")
    assert rewards == [(None, pytest.approx(right)), (run_id, pytest.approx(otherwise))]
    assert nightjar.sql("SELECT count(DISTINCT scoring_hash) FROM runs") == [(2,)]
