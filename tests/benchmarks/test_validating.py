"""``nightjar env validate``: reference replies through rollouts, of one turn and of several, with tools and judges."""

import json

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.model_server import FixedAnswer, ModelServer

NAMES = ["Ada Lovelace", "Alan Turing", "Grace Hopper", "Ann McKay", "Bo McKay", "Edsger Dijkstra"]
PROBLEM = {"problem": "1/2?", "solution": r"So \boxed{\frac{1}{2}}."}
QUESTION = {"problem": "Who won?", "answer": "Ann Lee"}
CHOICES = {f"Incorrect Answer {number}": f"wrong {number}" for number in (1, 2, 3)}
CASE = {"prompt": [{"role": "user", "content": "Fever."}], "rubrics": [{"criterion": "Asks", "points": 5}]}


@pytest.fixture
def validate(tmp_path):
    def validate(name, *rows, **env_args):
        if rows:
            path = tmp_path / "rows.jsonl"
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            env_args["dataset"] = str(path)
        ended = CliRunner().invoke(app, ["env", "validate", name, "--json", "-a", json.dumps(env_args)])
        return ended.exit_code, json.loads(ended.stdout)

    return validate


def test_references_are_worth_one_and_nothing_is_worth_nothing(validate):
    for name, *rows in [
        ("arithmetic",), ("tool-test",),
        ("alphabet-sort", *({"names": NAMES[start:] + NAMES[:start]} for start in range(6))),
        ("reverse-text", {"prompt": "abc def"}), ("math500", {"problem": "?", "answer": r"\frac{1}{2}"}),
        ("gpqa", {"Question": "?", "Correct Answer": "right", **CHOICES}),
        ("triviaqa", {"question": "?", "answer": {"value": "The Paris"}}),
    ]:  # fmt: skip
        code, found = validate(name, *rows)
        assert (code, found["problems"], found["correct"]) == (0, {}, len(found["tried"])), name
        assert {(tried["reward"], tried["blank"]) for tried in found["tried"]} == {(1.0, 0.0)}


def test_a_group_replies_as_each_of_its_environments_does(tmp_path, monkeypatch):
    (tmp_path / "both.py").write_text(
        "from nightjar.benchmarks import arithmetic, tool_test\nfrom nightjar.environments import EnvGroup\n"
        "def load_environment():\n"
        "    return EnvGroup([arithmetic.load_environment(2), tool_test.load_environment(num_eval_examples=2)])\n"
    )
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["env", "validate", "both.py"])
    assert (ended.exit_code, "Replies of references: 4/4 correct" in ended.stdout) == (0, True)


def test_code_runs_in_the_sandbox_of_the_rollout(validate, needs_sandbox):
    code, found = validate("math-python", PROBLEM, pip_install_packages="")
    assert (code, found["problems"], found["correct"]) == (0, {}, 1)


def test_a_named_judge_gets_a_request(validate):
    for name, row, verdict in (("simpleqa", QUESTION, "A"), ("healthbench", CASE, '{"criteria_met": true}')):
        with ModelServer(FixedAnswer(verdict)) as server:
            code, found = validate(name, row, judge_model="judge", judge_base_url=server.url)
            assert (code, found["problems"], server.stats().received) == (0, {}, 1)


def test_a_judge_without_a_key_is_a_problem(validate, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, found = validate("simpleqa", QUESTION)
    [problem] = found["problems"]
    assert (code, found["tried"][0]["blank"]) == (1, 0.0)
    assert "Judge model 'gpt-4.1': Environment variable 'OPENAI_API_KEY' not set" in problem


def test_a_rubric_that_scores_references_or_blanks_wrongly_fails(tmp_path, monkeypatch):
    (tmp_path / "lenient.py").write_text(
        "from nightjar.environments import SingleTurnEnv\nfrom nightjar.environments.rubrics import Rubric\n"
        "def half(completion, answer):\n    return 0.5 if completion[-1]['content'] in ('', answer) else 1.0\n"
        "def load_environment():\n"
        "    rows = [{'question': '2+2?', 'answer': '4'}, {'question': '?', 'answer': ''}]\n"
        "    return SingleTurnEnv(dataset=rows, rubric=Rubric([half]))\n"
    )
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["env", "validate", "lenient.py"])
    first, *problems = ended.stdout.splitlines()
    assert (ended.exit_code, first.partition(", in")[0]) == (
        1,
        "lenient: 2 examples. Replies of references: 0/2 correct",
    )
    assert [problem[:50] for problem in sorted(problems)] == [
        "FAIL: a reference reply is worth less than 1 (-v s",
        "FAIL: an empty reply is worth 0.5 (2×)",
        "FAIL: the data has no reference reply (1×)",
    ]
