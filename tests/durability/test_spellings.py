"""Other spellings of an environment are the same environment; missing state columns are named."""

import re
import shutil

import pytest

from nightjar.model_server import Faults

pytestmark = pytest.mark.long

ENVIRONMENT = """
import nightjar as vf

class Sums(vf.SingleTurnEnv):
    async def setup_state(self, state):
        state["difficulty"] = len(state["answer"])
        return state

def load_environment():
    def right(completion, answer):
        return float(answer in completion[-1]["content"])
    rows = [{"question": f"What is {n} + {n}?", "answer": str(n + n)} for n in range(5)]
    return Sums(dataset=rows, rubric=vf.Rubric([right]))
"""


@pytest.fixture(autouse=True)
def environment(nightjar):
    nightjar.write_environment("my_sums", ENVIRONMENT)


def test_a_resume_finds_the_run_under_another_spelling_and_no_other_environment_takes_it(nightjar, serve):
    assert nightjar.eval("my_sums", "--request-retries", 0, server=serve(faults=Faults(rate_500=0.5))).code == 1
    run, failed = nightjar.run, nightjar.run.metadata["failed"]
    server = serve()
    # The endpoint is part of what a run is, so the second server takes the place of the first in its configuration.
    config = run.path / "config.json"
    config.write_text(config.read_text().replace(nightjar.run.metadata["base_url"], server.url))
    shutil.rmtree(nightjar.folder / "outputs/warehouse")  # which knows the run by its first endpoint
    assert nightjar.eval("ada/my-sums", "--resume", server=server).code == 0
    assert nightjar.run.metadata["scored"] == 15
    assert nightjar.run.metadata["env_id"] == "my_sums"
    assert server.stats().received == failed
    nightjar.write_environment("my_sums_2", ENVIRONMENT)
    refused = nightjar.eval("my-sums-2", "--resume", run.path, server=server).error
    assert re.search("env_id: saved '.*my.sums', asked for 'my-sums-2'", refused), refused


def test_state_columns_that_no_rollout_has_are_named_once(nightjar, serve):
    ended = nightjar.eval("my-sums", "-C", "dificulty,difficulty,answer,rollout_index,nothing", server=serve()).ok()
    [warning] = [line for line in ended.stderr.splitlines() if line.startswith("WARNING")]
    assert "'dificulty', 'nothing'" in warning
    assert "difficulty, final_env_response" in warning
    assert [(row["dificulty"], row["difficulty"]) for row in nightjar.run.results[::3]] == [
        (None, len(str(n + n))) for n in range(5)
    ]
    assert "WARNING" not in nightjar.eval("my-sums", "-C", "difficulty,usage", server=serve()).stderr
