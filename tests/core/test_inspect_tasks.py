"""Tasks of Inspect give the scores of ``inspect eval`` for the same answers; other values are calculated by hand."""

import sys
import textwrap
from base64 import b64encode

import pytest

from nightjar.clients import ClientConfig
from nightjar.environments.loading import load_environment
from nightjar.environments.packages.lookup import environments_in, eval_defaults, version_info
from nightjar.errors import ConfigError, EnvironmentImportError, EnvironmentLoadError
from nightjar.model_server import ModelServer, Script, last_user_text, tool_call
from nightjar.model_server.answers import message_text

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning")]

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
HEAD = """
import asyncio
from inspect_ai import Epochs, Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import *
from inspect_ai.solver import *
from inspect_ai.tool import bash, computer, tool
from inspect_ai.util import sandbox, store

def sums(n=4, text="What is {0}+1?"):
    return [Sample(id=f"s{i}", input=text.format(i), target=str(i + 1)) for i in range(n)]

@tool
def add():
    async def execute(x: int, y: int):
        '''Add two numbers.

        Args:
            x: First number.
            y: Second number.
        '''
        return str(x + y)
    return execute

@task
def it(difficulty: int = 1):
    return {task}
"""


@pytest.fixture(scope="module", autouse=True)
def _inspect():
    pytest.importorskip("inspect_ai", reason="Inspect is not installed: pip install 'nightjar-evals[inspect]'")


def sum_of(messages):
    """Adds correctly, except that 2 and 1 are 4."""
    number = int(last_user_text(messages).split("What is ")[1].split("+")[0])
    return f"The sum is {4 if number == 2 else number + 1}"


def written(folder, task, *, before=""):
    path = folder / "evals.py"
    path.write_text(HEAD.replace("{task}", textwrap.dedent(task).strip()) + textwrap.dedent(before))
    return f"inspect://{path}@it"


def evaluated(uri, server, *, env_args=None, sampling_args=None, limits=None, **how):
    env = load_environment(uri, **(env_args or {}))
    env.set_kwargs(**(limits or {}))
    results = env.evaluate_sync(ClientConfig(api_base_url=server.base_url), "local", sampling_args, **how)
    return results["outputs"]


def with_sums(uri, **how):
    """Evaluates a task with a model that adds."""
    with ModelServer(Script(sum_of)) as server:
        return evaluated(uri, server, **how)


def test_a_score_is_a_metric_and_the_first_score_is_the_reward(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(), solver=generate(), scorer=[match(), includes(), f1()])")
    rows = with_sums(uri)
    assert [row["error"] for row in rows] == [None] * 4
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0, 1.0]
    # 'the sum is 1' has three words without articles, one of which is the target's: F1 is 2·(1/3·1)/(1/3+1) = 0.5
    assert rows[0]["metrics"] == {"match": 1.0, "includes": 1.0, "f1": 0.5, "num_turns": 1.0}
    assert [row["sample_id"] for row in rows] == ["s0", "s1", "s2", "s3"]
    assert rows[2]["extracted_answer"] == "The sum is 4"
    assert rows[2]["scoring_details"]["match"]["value"] == "I"
    assert {row["stop_condition"] for row in rows} == {"solvers_completed"}


def test_values_of_a_dict_are_metrics_of_their_own(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(1), scorer=shape())", before="""
        @scorer(metrics={"*": [mean()]})
        def shape():
            async def score(state, target):
                return Score(value={"words": len(state.output.completion.split()), "ok": "P", "no": "N"})
            return score
    """)  # fmt: skip
    [row] = with_sums(uri)
    assert row["metrics"] == {"shape": 4.0, "shape_words": 4.0, "shape_ok": 0.5, "shape_no": 0.0, "num_turns": 1.0}


def test_shuffled_choices_are_scored_by_their_original_positions(tmp_path):
    uri = written(tmp_path, "Task(dataset=shuffled(), solver=multiple_choice(), scorer=choice())", before="""
        def shuffled():
            data = MemoryDataset([Sample(input="Pick", choices=["no", "RIGHT", "never"], target="B") for _ in range(6)])
            data.shuffle_choices(seed=3)
            return data
    """)  # fmt: skip

    def pick(messages):
        lines = last_user_text(messages).splitlines()
        return "ANSWER: " + next(line for line in lines if line.endswith("RIGHT"))[0]

    with ModelServer(Script(pick)) as server:
        rows = evaluated(uri, server)
    assert [row["reward"] for row in rows] == [1.0] * 6
    assert len({row["prompt"][-1]["content"] for row in rows}) > 1


def test_an_agent_calls_tools_until_it_submits(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(2), solver=react(tools=[add()]), scorer=match())")
    turns = [
        lambda messages: tool_call("add", x=int(last_user_text(messages)[8]), y=1),
        lambda messages: tool_call("submit", answer=messages[-1]["content"]),
    ]
    with ModelServer(Script(turns)) as server:
        rows = evaluated(uri, server)
    assert [(row["reward"], row["extracted_answer"], row["metrics"]["num_turns"]) for row in rows] == [
        (1.0, "1", 2), (1.0, "2", 2),
    ]  # fmt: skip
    assert [message["role"] for message in rows[0]["completion"]] == ["assistant", "tool", "assistant"]
    assert {tool["name"] for tool in rows[0]["tool_defs"]} == {"add", "submit"}


def test_a_rollout_at_its_limit_is_scored_as_it_is(tmp_path):
    for limit, limits, condition, turns in [
        ("message_limit=5", {}, "message_limit_reached", 2), ("turn_limit=3", {}, "turn_limit_reached", 4),
        ("token_limit=1", {}, "token_limit_reached", 1), ("", {"max_turns": 2}, "turn_limit_reached", 2),
    ]:  # fmt: skip
        uri = written(tmp_path, f"Task(dataset=sums(1), solver=react(tools=[add()]), scorer=includes(), {limit})")
        with ModelServer(Script(lambda _: tool_call("add", x=1, y=1))) as server:
            [row] = evaluated(uri, server, limits=limits)
            assert not limits or server.stats().answered == 2
        found = (row["stop_condition"], row["is_truncated"], row["reward"], row["error"])
        assert found == (condition, True, 0.0, None)
        assert row["metrics"]["num_turns"] == turns


def test_the_time_limit_of_a_run_ends_a_sample_and_scores_it(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(1), solver=[generate(), wait()], scorer=includes())", before="""
        @solver
        def wait():
            async def solve(state, generate):
                await asyncio.sleep(600)
                return state
            return solve
    """)  # fmt: skip
    [row] = with_sums(uri, limits={"timeout_seconds": 3})
    assert (row["stop_condition"], row["reward"]) == ("time_limit_reached", 1.0)


def test_grades_of_a_judge_are_rewards_and_a_missing_grade_fails_the_rollout(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(4), scorer=model_graded_qa(partial_credit=True))")
    grades = ["GRADE: C", "GRADE: P", "GRADE: I", "I cannot say"]

    def grade(messages):
        text = last_user_text(messages)
        return next(said for number, said in enumerate(grades) if f"What is {number}+1" in text)

    with ModelServer(Script(sum_of)) as server, ModelServer(Script(grade), keep_requests=9) as judge:
        rows = evaluated(uri, server, env_args={"judge_model": "judge", "judge_base_url": judge.base_url})
        assert (server.stats().answered, judge.stats().answered) == (4, 4)
        assert {request.body["model"] for request in judge.requests} == {"judge"}
    assert [row["reward"] for row in rows] == [1.0, 0.5, 0.0, None]
    assert rows[3]["error"]["error"] == "ScoringError"
    assert "grader_failed" in rows[3]["error"]["message"]
    assert rows[0]["judge_usage"]["output_tokens"] > 0
    assert len(rows[0]["completion"]) == 1


def test_without_a_judge_the_evaluated_model_grades(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(1), scorer=model_graded_fact())")
    said = lambda messages: "GRADE: C" if "BEGIN DATA" in last_user_text(messages) else "1"  # noqa: E731
    with ModelServer(Script(said)) as server:
        [row] = evaluated(uri, server)
        assert server.stats().answered == 2
    assert (row["reward"], row["metrics"]["num_turns"]) == (1.0, 1.0)


def test_sampling_arguments_of_the_run_win_over_those_of_the_task(tmp_path):
    config = "GenerateConfig(temperature=0.3, max_tokens=50, stop_seqs=['END'], top_p=0.9, max_retries=9, timeout=1)"
    uri = written(tmp_path, f"Task(dataset=sums(1), solver=generate(top_p=0.5), scorer=match(), config={config})")
    with ModelServer(Script(sum_of), keep_requests=9) as server:
        evaluated(uri, server, sampling_args={"temperature": 1.0})
        [request] = server.requests
    sent = {name: request.body[name] for name in ("temperature", "max_completion_tokens", "stop", "top_p")}
    assert sent == {"temperature": 1.0, "max_completion_tokens": 50, "stop": ["END"], "top_p": 0.5}
    assert not {"n", "timeout", "max_retries"} & {*request.body} - {"n"}


def test_concurrent_samples_have_their_own_store_model_and_messages(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(20), solver=[keep(), generate(), check()], scorer=match())", before="""
        @solver
        def keep():
            async def solve(state, generate):
                store().set("id", state.sample_id)
                return state
            return solve

        @solver
        def check():
            async def solve(state, generate):
                assert store().get("id") == state.sample_id and len(state.messages) == 2
                return state
            return solve
    """)  # fmt: skip
    rows = with_sums(uri, rollouts_per_example=2)
    assert [row["error"] for row in rows] == [None] * 40
    assert [row["reward"] for row in rows] == [0.0 if n in {4, 5} else 1.0 for n in range(40)]


def test_an_exception_of_a_solver_fails_its_rollout(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(3), solver=[generate(), odd()], scorer=match())", before="""
        @solver
        def odd():
            async def solve(state, generate):
                if state.sample_id == "s1":
                    raise KeyError("no such thing")
                return state
            return solve
    """)  # fmt: skip
    rows = with_sums(uri)
    assert [row["reward"] for row in rows] == [1.0, None, 0.0]
    assert rows[1]["error"]["error"] == "KeyError"
    assert 'raise KeyError("no such thing")' in rows[1]["error"]["traceback"]


def test_what_is_not_supported_is_refused_by_name(tmp_path):
    (tmp_path / "compose.yaml").write_text("services: {default: {image: x}}")
    (tmp_path / "human.yaml").write_text("approvers: [{name: human, tools: '*'}]")
    for arguments, named in {
        "scorer=match(), sandbox=('docker', 'compose.yaml')": "compose file",
        "scorer=match(), sandbox='k8s'": "'k8s'",
        "solver=[use_tools(computer()), generate()], scorer=match()": "'computer'",
        "scorer=model_graded_qa(model='openai/gpt-4o')": "model='openai/gpt-4o'",
        "solver=self_critique(model='openai/gpt-4o'), scorer=match()": "self_critique",
        "solver=generate(cache=True), scorer=match()": "cache",
        "scorer=match(), config=GenerateConfig(logprobs=True)": "logprobs",
        "scorer=match(), approval='human.yaml'": "approval",
        "scorer=match(), cost_limit=1.0": "cost limit",
        "scorer=match(), model_roles={'red': 'mockllm/red'}": "role 'red'",
        "": "without a scorer",
        "solver=human_agent(), scorer=match()": "human_agent",
    }.items():
        with pytest.raises(EnvironmentLoadError, match=f"(?s)does not support: .*{named}"):
            load_environment(written(tmp_path, f"Task(dataset=sums(), {arguments})"))


def test_a_model_of_another_provider_is_not_asked(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(1), solver=[generate(), other()], scorer=match())", before="""
        @solver
        def other():
            async def solve(state, generate):
                await get_model("mockllm/other").generate("Hello")
                return state
            return solve
    """)  # fmt: skip
    [row] = with_sums(uri)
    assert row["error"]["error"] == "ConfigError"
    assert "'mockllm/other'" in row["error"]["message"]


def test_a_model_named_in_the_task_is_asked_at_the_endpoint_of_the_run(tmp_path):
    uri = written(
        tmp_path, "Task(dataset=sums(1), solver=[generate(), self_critique(model='nightjar/big')], scorer=match())"
    )
    with ModelServer(Script(lambda _: "1"), keep_requests=9) as server:
        [row] = evaluated(uri, server)
        assert [request.body["model"] for request in server.requests] == ["local", "big", "local"]
    assert (row["reward"], row["metrics"]["num_turns"]) == (1.0, 3.0)


def test_a_sandbox_has_the_files_of_its_sample_and_is_read_by_the_scorer(tmp_path):
    uri = written(tmp_path, """
        Task(dataset=[Sample(input="Copy", target="HELLO", files={"in.txt": "hello"}, setup="tr a-z A-Z <in.txt >up")],
             solver=[use_tools(bash()), generate()], scorer=file_is(), sandbox="local")
    """, before="""
        @scorer(metrics=[accuracy()])
        def file_is():
            async def score(state, target):
                found = await sandbox().read_file("out.txt")
                return Score(value="C" if found.strip() == target.text else "I", answer=found)
            return score
    """)  # fmt: skip
    with ModelServer(Script([tool_call("bash", command="cp up out.txt; id -u >&2; false"), "Done"])) as server:
        [row] = evaluated(uri, server)
    assert (row["error"], row["reward"], row["extracted_answer"]) == (None, 1.0, "HELLO")


def test_a_resume_scores_what_was_generated_without_a_request(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(4), solver=[generate(), self_critique()], scorer=[match(), f1()])")
    said = lambda messages: "It is good." if "BEGIN DATA" in last_user_text(messages) else sum_of(messages[:1])  # noqa: E731
    with ModelServer(Script(said)) as server:
        first = evaluated(uri, server, results_path=tmp_path / "run")
        answered = server.stats().answered
        for name in ("results.jsonl", "metadata.json"):  # as after kill -9 between generation and scoring
            (tmp_path / "run" / name).unlink()
        again = evaluated(uri, server, results_path=tmp_path / "run")
        assert (answered, server.stats().answered) == (12, 12)
    kept = ("reward", "metrics", "completion", "scoring_details", "stop_condition")
    assert [[row[name] for name in kept] for row in first] == [[row[name] for name in kept] for row in again]


def test_the_epochs_of_a_task_are_the_default_number_of_rollouts(tmp_path, caplog):
    uri = written(tmp_path, "Task(dataset=sums(), scorer=match(), epochs=Epochs(2 + difficulty, 'max'))")
    assert eval_defaults(uri).rollouts_per_example == 3
    assert eval_defaults(uri, env_args={"difficulty": 3}).rollouts_per_example == 5
    load_environment(uri)
    assert "reduces epochs with max" in caplog.text


def test_a_changed_task_file_has_another_hash(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(), scorer=match())")
    before = version_info(uri)["env_hash"]
    written(tmp_path, "Task(dataset=sums(), scorer=includes())")
    assert before not in {None, version_info(uri)["env_hash"]}


def test_arguments_come_from_the_uri_and_unknown_ones_are_refused(tmp_path):
    uri = written(tmp_path, "Task(dataset=sums(difficulty), scorer=match())")
    assert len(load_environment(f"{uri}?difficulty=2").examples) == 2
    assert len(load_environment(uri, difficulty=3).examples) == 3
    with pytest.raises(EnvironmentLoadError, match=r"does not take the argument 'size'\. It takes: difficulty, docker"):
        load_environment(uri, size=3)


def test_a_uri_without_a_task_is_an_error(tmp_path):
    written(tmp_path, "Task(dataset=sums(), scorer=match())", before="""
        @task
        def that():
            return it()
    """)  # fmt: skip
    file = tmp_path / "evals.py"
    for uri, error, text in [
        ("inspect://nowhere.py@it", EnvironmentLoadError, "there is no file 'nowhere.py'"),
        ("inspect://no_package_of_this_name/task", EnvironmentLoadError, "no such task"),
        ("inspect://gsm8k", ConfigError, "names no task"), ("inspect://", ConfigError, "names no task"),
        (f"inspect://{file}@other", EnvironmentLoadError, "no task 'other'. Choose one of: .*@it"),
        (f"inspect://{file}", EnvironmentLoadError, "@it, .*@that"),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            load_environment(uri)


def test_scores_of_a_chain_of_solvers_equal_those_of_inspect_eval(tmp_path):
    solvers = "[system_message('Be brief'), chain_of_thought(), use_tools(add()), generate(), self_critique()]"
    uri = written(
        tmp_path, f"Task(dataset=sums(4), solver={solvers}, scorer=[answer('line'), f1(), pattern(r'(\\d)')])"
    )

    def said(messages):
        text = message_text(messages[1 if len(messages) > 1 else 0])
        if "BEGIN DATA" in text:
            return "Think again."
        if messages[-1]["role"] == "tool":
            return f"ANSWER: {message_text(messages[-1])}"
        return "ANSWER: 3" if len(messages) > 3 else tool_call("add", x=int(text.split("What is ")[1][0]), y=1)

    with ModelServer(Script(said)) as server:
        rows = evaluated(uri, server)
    scores = [tuple((score["value"], score["answer"]) for score in row["scoring_details"].values()) for row in rows]
    wrong = (("I", "3"), (0.0, "ANSWER: 3"), ("I", "3"))
    # as logged by 'inspect eval' 0.3.285, with openai/local as the model, from the same server
    assert scores == [wrong, wrong, (("C", "3"), (0.67, "ANSWER: 3"), ("C", "3")), wrong]


def test_a_task_that_was_sent_to_a_worker_is_found_in_the_folder_of_sent_environments(tmp_path, monkeypatch):
    (tmp_path / "sent").mkdir()
    (tmp_path / "worker").mkdir()
    written(tmp_path / "sent", "Task(dataset=sums(2), scorer=match())")
    monkeypatch.chdir(tmp_path / "worker")
    with environments_in(tmp_path / "sent"):
        assert len(load_environment("inspect://evals/evals.py@it").examples) == 2


def test_an_image_of_a_sample_is_sent_as_data(tmp_path):
    (tmp_path / "dot.png").write_bytes(PNG)
    content = "[ContentText(text='What is 1+1?'), ContentImage(image=PLACE)]"
    sample = f"Sample(input=[ChatMessageUser(content={content})], target='2')"
    uri = written(tmp_path, f"Task(dataset=[{sample}], scorer=includes())", before=f"""
        from inspect_ai.model import ChatMessageUser, ContentImage, ContentText
        PLACE = {str(tmp_path / "dot.png")!r}
    """)  # fmt: skip
    with ModelServer(Script(sum_of), keep_requests=1) as server:
        [row] = evaluated(uri, server)
        [request] = server.requests
    assert (row["error"], row["reward"]) == (None, 1.0)
    sent = request.body["messages"][0]["content"][1]
    assert sent == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(PNG).decode()}"}}


def test_a_broken_task_file_is_an_error_with_its_reason(tmp_path):
    file = tmp_path / "evals.py"
    for source, text in [
        (b"def it(:", "SyntaxError"), (b"", "has no task"), (b"\xff\xfe", "SyntaxError|UnicodeDecodeError|ValueError"),
        (b"from inspect_ai import task\n@task\ndef it():\n    raise OSError('no disk')", "OSError: no disk"),
    ]:  # fmt: skip
        file.write_bytes(source)
        with pytest.raises(EnvironmentLoadError, match=text):
            load_environment(f"inspect://{file}@it")
    (tmp_path / "neighbour.py").touch()
    for source in ("import no_such_module.of_tasks", "from no_such_module import it"):
        file.write_text(f"import sys\nimport neighbour\n{source}\n")
        with pytest.raises(EnvironmentImportError, match="ModuleNotFoundError: No module named 'no_such_module'"):
            load_environment(f"inspect://{file}")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(EnvironmentImportError, match=r"pip install 'nightjar-evals\[inspect\]'"):
        load_environment("inspect://evals.py@it")
