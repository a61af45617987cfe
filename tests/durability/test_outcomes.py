"""How rollouts end besides scored and failed: content-filtered, timed out, truncated, empty."""

import json
import time
from collections import Counter

import pytest

pytestmark = pytest.mark.long

AZURE = {"error": {"code": "content_filter", "message": "The prompt triggered the content management policy."}}
OFTEN = ("--max-retries", 0, "--request-retries", 0, "--request-timeout", 2)


def chat(text, reason="stop"):
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text}}
    return 200, {"id": "c", "created": 1, "model": "m", "choices": [choice]}, {}


@pytest.fixture
def endpoint(http_server):
    """Starts a server whose first questions end as ``kinds`` says; returns its URL and the requests of each kind."""

    def start(*kinds):
        of_question, received = {}, Counter()

        def reply(_, body):
            question = json.loads(body)["messages"][-1]["content"]
            position = of_question.setdefault(question, len(of_question))
            kind = kinds[position] if position < len(kinds) else "scored"
            received[kind] += 1
            match kind:
                case "refused":
                    return 400, AZURE, {}
                case "withheld":
                    return chat("", "content_filter")
                case "empty":
                    return chat("")
                case "truncated":
                    return chat("The answer is", "length")
                case "late":
                    time.sleep(3)
            return chat("4")

        return f"{http_server(reply)}/v1", received

    return start


def test_each_outcome_is_in_the_panel_and_in_sql_and_a_resume_requests_no_filtered_rollout(nightjar, endpoint):
    url, received = endpoint(*["refused"] * 5, *["withheld"] * 2, *["empty"] * 2, "truncated", "late")
    arguments = ("-n", 20, "-r", 1, "-c", 4, "-m", "m", "-b", url, *OFTEN)

    ended = nightjar.eval("arithmetic", *arguments)

    assert ended.code == 1
    assert "7 content filtered, 2 empty, 1 timed out, 1 truncated" in " ".join(ended.stdout.replace("│", "").split())
    outcomes = {"scored": 9, "content_filtered": 7, "empty": 2, "timed_out": 1, "truncated": 1}
    assert nightjar.run.metadata["outcomes"] == outcomes
    assert dict(nightjar.sql("SELECT outcome, count(*) FROM rollouts GROUP BY ALL")) == outcomes

    received.clear()
    nightjar.eval("arithmetic", *arguments, "--resume")
    assert received == {"empty": 2, "late": 1}

    received.clear()
    nightjar.start("eval", "retry", nightjar.run.metadata["run_id"], "--class", "content-filter").wait()
    assert received == {"refused": 5, "withheld": 2}


def test_a_run_whose_other_rollouts_are_filtered_is_complete_and_its_coverage_says_so(nightjar, endpoint):
    url, received = endpoint(*["refused"] * 5)

    ended = nightjar.eval("arithmetic", "-n", 20, "-r", 1, "-c", 1, "-m", "m", "-b", url, *OFTEN)

    assert ended.code == 0, "five at the start do not stop it"
    metadata = nightjar.run.metadata
    assert (metadata["status"], metadata["scored"], metadata["coverage"]) == ("completed", 15, 0.75)
    assert received == {"refused": 5, "scored": 15}
