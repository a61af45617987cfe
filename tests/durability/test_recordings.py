"""Real input with a known result: what two real models answered to GSM8K's 1,319 questions.

Whether each of these answers is right has been published with them (openai/grade-school-math).
"""

import json

import pytest

from nightjar.model_server import Recording

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("recording", "right"), [("recorded-6b-finetuning.jsonl", 286), ("recorded-6b-verification.jsonl", 515)]
)
def test_the_reward_of_every_question_is_the_published_one(nightjar, serve, gsm8k, recording, right):
    server = serve(Recording.load(gsm8k / recording))
    arguments = json.dumps({"dataset": str(gsm8k / "test.jsonl"), "system_prompt": None})
    ended = nightjar.eval("gsm8k", "-a", arguments, "-n", -1, "-r", 1, "--json", server=server).ok()
    assert server.stats().answered == 1319
    published = [json.loads(line) for line in (gsm8k / recording).read_text("utf-8").splitlines()]
    is_correct = {row["question"].strip(): row["is_correct"] for row in published}
    results = nightjar.run.results
    assert len(results) == 1319
    for row in results:
        question = row["prompt"][-1]["content"].strip()
        assert row["reward"] == float(is_correct[question]), question
    metadata = nightjar.run.metadata
    assert metadata["avg_reward"] == right / 1319
    assert [metadata[name] for name in ("status", "scored", "failed", "coverage")] == ["completed", 1319, 0, 1.0]
    printed = json.loads(ended.stdout)
    assert {name: printed[name] for name in metadata} == metadata
    counts = "avg(reward), count(*), count(*) FILTER (reward = 1)"
    assert nightjar.sql(f"SELECT {counts} FROM rollouts") == [(right / 1319, 1319, right)]
    assert nightjar.sql("SELECT avg_reward, coverage FROM leaderboard") == [(right / 1319, 1.0)]
    in_warehouse = nightjar.sql("SELECT trim(prompt->-1->>'content'), reward = 1 FROM rollouts")
    assert dict(in_warehouse) == is_correct
