"""The defects of NeMo Evaluator that no other test file covers, by the sections of their list, as tests of Nightjar."""

from collections import Counter

import pytest

from nightjar.compat import nemo
from nightjar.environments.seeded.eval_environment import EvalEnvironment
from nightjar.errors import ConfigError, ResumeMismatchError, RunAbortedError, SandboxError
from nightjar.model_server import FixedAnswer, ModelServer, last_user_text

pytestmark = pytest.mark.slow


class Echo(EvalEnvironment):
    """Asks for numbers with the text ``asked``."""

    name = "echo"

    def __init__(self, size=5, asked="Say {}.", metadata=None):
        super().__init__()
        self.size, self.asked, self.metadata = size, asked, metadata or {}

    def __len__(self):
        return self.size

    async def seed(self, idx):
        return nemo.SeedResult(self.asked.format(idx), str(idx), dict(self.metadata))

    async def verify(self, response, expected, sandbox=None, **metadata):
        return nemo.VerifyResult(float(response == expected), response)


class Judged(Echo):
    """Needs a judge, and also returns a reward."""

    async def verify(self, response, expected, sandbox=None, **metadata):
        return nemo.VerifyResult(1.0, None, {"needs_judge": True})


class Flaky:
    """Raises the given errors, and counts the attempts at each problem."""

    def __init__(self, **errors):
        self.errors, self.asked = {name[1:]: error for name, error in errors.items()}, Counter()

    async def solve(self, task):
        self.asked[task.expected_answer] += 1
        if (error := self.errors.get(task.expected_answer)) is not None:
            raise error
        return nemo.SolveResult(
            task.expected_answer, trajectory=[{"role": "assistant", "content": task.expected_answer}]
        )


def rewards(bundle):
    return [row["reward"] for row in bundle["_results"]]


@pytest.fixture
def endpoint(canned):
    """Answers a question with its number, or first with its ``statuses``; returns the list of questions asked."""

    def start(statuses):
        asked = []

        def choose(_, body):
            number = last_user_text(body["messages"]).split()[-1].strip(".")
            asked.append(number)
            if left := statuses.get(number):
                canned.reply({"error": {"message": "no"}}, left.pop(0), Retry_After="1")
            else:
                choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": number}}
                canned.reply({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})

        canned.choose = choose
        return canned.url, asked

    return start


def test_a_second_benchmark_with_the_same_name_is_warned_about_whatever_its_capitals(tmp_path, caplog):
    (tmp_path / "shadowing.py").write_text(
        "from nightjar.compat.nemo import EvalEnvironment, benchmark, register\n"
        "for name in ('Same', 'other'):\n"
        "    benchmark(name=name, dataset=[{'target': '1'}])(lambda sample: 1.0)\n"
        "@register('SAME')\n"
        "class Same(EvalEnvironment):\n"
        "    async def seed(self, idx): ...\n"
        "    async def verify(self, response, expected, sandbox=None, **metadata): ...\n"
    )
    (tmp_path / "elsewhere.py").write_text(
        "from nightjar.compat.nemo import benchmark\nbenchmark('other', [{'target': '1'}])(lambda _: 1.0)\n"
    )
    for name in ("shadowing", "elsewhere", "elsewhere"):  # again without a warning
        nemo.load_benchmark_file(str(tmp_path / f"{name}.py"))
    first, second = caplog.messages
    assert "'SAME' is defined twice" in first
    assert "'other' is defined twice" in second


def test_an_unknown_endpoint_type_or_environment_is_an_error():
    from nightjar.environments.seeded.benchmark import BenchmarkDefinition, ByobEnvironment

    with pytest.raises(ConfigError, match=r"unknown endpoint_type 'vlm'\. Choose one of: chat, completions"):
        ByobEnvironment(BenchmarkDefinition("b", [{"target": "1"}], "", endpoint_type="vlm"))
    for name, match in (("arithmetik", "'arithmetik'.*arithmetic"), ("ftp://h", "'ftp'")):
        with pytest.raises((ValueError, ConfigError), match=match):
            nemo.get_environment(name)


@pytest.mark.parametrize("messages", [None, [{"role": "system", "content": "Own."}]])
async def test_a_given_system_prompt_replaces_the_benchmarks(messages):
    from nightjar.environments.seeded.bridge import as_environment

    class Own(Echo):
        async def seed(self, idx):
            seed = await super().seed(idx)
            question = {"role": "user", "content": seed.prompt}
            seed.system, seed.messages = "Own.", messages and [*messages, question]
            return seed

    env = as_environment(Own(1))
    assert [message["content"] for message in env.examples[0]["prompt"]] == ["Own.", "Say 0."]
    env.set_system_prompt("Mine.")
    assert [message["content"] for message in env.examples[0]["prompt"]] == ["Mine.", "Say 0."]
    with ModelServer(FixedAnswer("0"), keep_requests=1) as server:
        await nemo.run_evaluation(Own(1), nemo.ChatSolver(nemo.ModelClient(server.url, "m"), "Mine."))
        [asked] = server.requests
    assert [message["content"] for message in asked.body["messages"]] == ["Mine.", "Say 0."]


@pytest.mark.slow
async def test_a_request_that_waits_for_its_retry_does_not_block_others(endpoint):
    url, asked = endpoint({"0": [429]})
    bundle = await nemo.run_evaluation(Echo(), nemo.ChatSolver(nemo.ModelClient(url, "m", max_concurrent=1)))
    assert rewards(bundle) == [1.0] * 5
    assert asked[0] == asked[-1] == "0", "it waited while the others were asked"
    assert bundle["_artifacts"].runtime.total_retries == 1


async def test_a_request_that_is_refused_as_invalid_is_not_repeated(endpoint):
    for status in (400, 401, 403, 404, 422):
        url, asked = endpoint({"1": [status] * 9})
        bundle = await nemo.run_evaluation(Echo(), nemo.ChatSolver(nemo.ModelClient(url, "m")))
        assert rewards(bundle) == [1.0, None, 1.0, 1.0, 1.0]
        assert Counter(asked) == {str(number): 1 for number in range(5)}
        assert "infra_error" not in bundle["_artifacts"].failures.categories


async def test_a_client_that_allows_fewer_requests_than_problems_is_warned_about(caplog):
    with ModelServer(FixedAnswer("0")) as server:
        for allowed, warned in ((9, False), (4, True)):
            solver = nemo.ChatSolver(nemo.ModelClient(server.url, "m", max_concurrent=allowed))
            await nemo.run_evaluation(Echo(1), solver, max_concurrent=9)
            assert ("4 concurrent requests (max_concurrent), but 9 problems" in caplog.text) is warned


async def test_a_client_works_after_an_evaluation_and_after_it_was_closed():
    with ModelServer(FixedAnswer("0")) as server:
        client = nemo.ModelClient(server.url, "m")
        solver = nemo.ChatSolver(client)
        assert rewards(await nemo.run_evaluation(Echo(1), solver)) == [1.0]
        await solver.close()
        assert (await client.chat("0?")).content == "0"


async def test_an_unavailable_endpoint_is_an_error_and_not_a_score(tmp_path):
    from nightjar.compat.nemo.engine.model_client import RetryConfig

    client = nemo.ModelClient("http://127.0.0.1:9/v1", "m", retry=RetryConfig(max_retries=0))
    with pytest.raises(RunAbortedError, match="the first 5 requests failed"):
        await nemo.run_evaluation(Echo(), nemo.ChatSolver(client), max_system_retries=2, step_log_dir=tmp_path)


async def test_a_resume_with_another_solver_or_client_is_refused(tmp_path):
    others = [
        ("ChatSolver", {}, {"model": "n"}, "model"), ("ChatSolver", {}, {"seed": 8}, "sampling_args"),
        ("ChatSolver", {}, {"stop": ["x"]}, "sampling_args"),
        ("ChatSolver", {}, {"temperature": 1}, "sampling_args"),
        ("ChatSolver", {}, {"presence_penalty": 0.1}, "sampling_args"),
        ("ChatSolver", {}, {"base_url": "http://127.0.0.1:9/v1"}, "base_url"),
        ("ChatSolver", {}, {"reasoning_pattern": "<.*>"}, "env_args"),
        ("ChatSolver", {"system_prompt": "Be brief."}, {}, "env_args"),
        ("VLMSolver", {"image_detail": "low"}, {}, "env_args"), ("ReActSolver", {"max_turns": 2}, {}, "env_args"),
        ("ReActSolver", {"generation": {"temperature": 0.5}}, {}, "env_args"),
    ]  # fmt: skip
    with ModelServer(FixedAnswer("0")) as server:
        given = {"base_url": server.url, "model": "m", "seed": 7, "temperature": 0.0}
        for name in ("ChatSolver", "VLMSolver", "ReActSolver"):
            solver, logs = getattr(nemo, name), tmp_path / name
            for resume in (False, True):
                same = solver(nemo.ModelClient(**given))
                await nemo.run_evaluation(Echo(1), same, step_log_dir=logs, resume=resume)
            for how, client, named in (other[1:] for other in others if other[0] == name):
                other = solver(nemo.ModelClient(**given | client), **how)
                with pytest.raises(ResumeMismatchError, match=rf"\b{named}: saved"):
                    await nemo.run_evaluation(Echo(1), other, step_log_dir=logs, resume=True)
        assert server.stats().received == 3


async def test_a_resume_of_other_questions_is_refused_and_of_more_questions_is_not(tmp_path):
    await nemo.run_evaluation(Echo(3), Flaky(), step_log_dir=tmp_path)
    for env in (Echo(3, "Tell {}."), Echo(3, metadata={"version": 2})):
        with pytest.raises(ResumeMismatchError, match="dataset_fingerprint"):
            await nemo.run_evaluation(env, Flaky(), step_log_dir=tmp_path, resume=True)
    more = Flaky()
    await nemo.run_evaluation(Echo(5), more, step_log_dir=tmp_path, resume=True)
    assert set(more.asked) == {"3", "4"}, "problems may be added"


def test_settings_of_a_solver_have_its_url_and_not_its_key():
    from nightjar.compat.nemo.solvers import GymSolver

    assert GymSolver("h:1").settings["gym_url"] != GymSolver("h:2").settings["gym_url"]
    assert "sk-secret" not in str(GymSolver("h:1", api_key="sk-secret").settings)


async def test_resumed_rows_have_all_fields_of_new_rows(tmp_path):
    first = await nemo.run_evaluation(Echo(2), Flaky(), step_log_dir=tmp_path)
    again = await nemo.run_evaluation(Echo(2), Flaky(), step_log_dir=tmp_path, resume=True)
    assert again["_results"] == first["_results"]
    assert {"scorer_rewards", "trajectory"} <= again["_results"][0].keys()


async def test_without_a_working_judge_there_is_no_reward():
    class Broken:
        async def chat(self, prompt):
            raise ConnectionError("away")

    for judge in (None, Broken()):
        assert rewards(await nemo.run_evaluation(Judged(1), Flaky(), judge_client=judge)) == [None]
    with ModelServer(FixedAnswer('{"score": 2}')) as server:
        bundle = await nemo.run_evaluation(Judged(1), Flaky(), judge_client=nemo.ModelClient(server.url, "j"))
    assert rewards(bundle) == [0.4]


async def test_the_last_of_two_shards_with_the_same_step_counts_and_both_stay_unchanged(tmp_path):
    for shard, solver in enumerate((Flaky(_0=KeyError("a bug")), Flaky())):
        nemo.write_all(await nemo.run_evaluation(Echo(2), solver, problem_range=(0, 2)), tmp_path / f"shard_{shard}")
    folders = [tmp_path / "shard_0", tmp_path / "shard_1"]
    before = [(folder / "results.jsonl").read_bytes() for folder in folders]
    assert rewards(nemo.merge_results(folders, tmp_path / "merged")) == [1.0, 1.0]
    assert [(folder / "results.jsonl").read_bytes() for folder in folders] == before


def test_code_without_a_sandbox_is_an_error_and_not_a_wrong_answer(monkeypatch, tmp_path):
    from nightjar.compat.nemo.scoring import ScorerInput, code_sandbox

    monkeypatch.setenv("NIGHTJAR_SANDBOX", "docker")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    row = {"test": "def check(candidate): pass", "entry_point": "f"}
    with pytest.raises(SandboxError):
        code_sandbox(ScorerInput("def f(): pass", "", row))
