"""``nightjar config``: what is set is what runs, the warehouse and a judge take, and what is wrong is refused."""

import json

import pytest

from nightjar.model_server import FixedAnswer

pytestmark = pytest.mark.long

JUDGED = """\
from nightjar.compat.nemo import benchmark, needs_judge, scorer
@benchmark(name="essays", dataset=[{"topic": "moths", "target": "fly"}], prompt="About {topic}.")
@scorer
def judged(sample):
    return needs_judge(sample)
"""


def test_what_is_set_is_used_until_it_is_unset(nightjar, serve):
    server, judge = serve(FixedAnswer("moths"), keep_requests=20), serve(FixedAnswer('{"score": 4}'), keep_requests=20)
    nightjar.write_environment("essays", JUDGED)

    def config(*typed):
        return nightjar.start("config", *typed).wait()

    said = {
        "eval.model": "mine", "eval.base_url": server.url, "eval.num_examples": 1, "eval.output_dir": "there",
        "warehouse": "house", "judge.model": "wise", "judge.base_url": judge.url,
    }  # fmt: skip
    for key, value in said.items():
        assert config("set", key, value).code == 0
    assert json.loads(config("show", "--json").stdout)["values"] == said
    assert config("get", "eval.model").stdout == "mine\n"
    assert config("get", "eval.provider").code == 1
    planted = config("set", "api_key", "sk-planted-0123")
    assert (planted.code, "secrets must not be stored" in planted.stderr) == (1, True)
    assert "planted" not in planted.stderr

    assert nightjar.start("eval", "run", "essays", "-r", "2", "--direct").wait().code == 0
    assert {request.body["model"] for request in server.requests} == {"mine"}
    assert {request.body["model"] for request in judge.requests} == {"wise"}
    assert nightjar.run.path.is_relative_to(nightjar.folder / "there")
    assert [(row["reward"], row["scoring_details"]["judge"]["model"]) for row in nightjar.run.results] == [
        (0.8, "wise"), (0.8, "wise"),
    ]  # fmt: skip
    assert (nightjar.folder / "house").is_dir()
    assert not (nightjar.folder / "outputs").exists()

    assert config("unset", "eval.model").code == 0
    plan = json.loads(nightjar.start("eval", "run", "essays", "--dry-run", "--json").wait().stdout)
    assert (plan["config"]["model"], plan["sources"]["model"]) == ("openai/gpt-4.1-mini", "built-in")
    assert (plan["config"]["num_examples"], plan["sources"]["num_examples"]) == (1, "user config")
