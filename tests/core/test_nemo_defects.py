"""What NeMo Evaluator gets wrong, tested the other way round: what is not shown where it belongs, by section.

The others, in this folder and beside it:

- ``test_seeded_env.py``: metadata with the names of ``verify``'s arguments, a judge that is missing, unknown fields of
  a prompt, the first text of a scorer's dict, requirements, benchmarks of unknown size
- ``test_nemo_evaluation.py``: outages, resume, repeats, shards and percentiles, retries that are counted, refusals, a
  client that is used again, a folder that is written to twice, names of benchmarks in two files
- ``test_nemo_scorers.py``: texts, numbers, JSON and judges; ``test_nemo_metrics.py``: names of scores, intervals
- ``test_nemo_config.py``: keys, overrides, and what cannot be honoured
- ``test_gym.py``, ``test_package_command.py``: native servers and their rows, tools that are away; a build that fails
- ``../warehouse``: ``test_nemo_reports.py``, ``test_gate.py`` and ``test_compare.py`` have the verdicts,
  ``test_eval_merge.py`` the parts
- ``../durability``: ``test_serving.py`` has what a server refuses, ``test_config_commands.py`` values of ``config``,
  ``test_code_attacks.py`` code that pretends, ``test_interrupted.py`` Ctrl-C, ``test_nemo_defects.py`` the commands
"""

import asyncio
import json
from collections import Counter

import pytest
from aiohttp import web

from nightjar.compat.nemo import (
    ChatSolver,
    EvalEnvironment,
    InfraError,
    ModelClient,
    OracleSolver,
    ReActSolver,
    SeedResult,
    SolveResult,
    VerifyResult,
    VLMSolver,
    compare_runs,
    get_environment,
    load_benchmark_file,
    merge_results,
    run_evaluation,
    write_all,
)
from nightjar.compat.nemo.engine.model_client import RetryConfig
from nightjar.compat.nemo.scoring import ScorerInput, code_sandbox
from nightjar.compat.nemo.solvers import GymSolver
from nightjar.environments.seeded.benchmark import BenchmarkDefinition, ByobEnvironment
from nightjar.environments.seeded.bridge import as_environment
from nightjar.environments.seeded.rows import load_rows
from nightjar.errors import ConfigError, DatasetError, ResumeMismatchError, RunAbortedError, SandboxError
from nightjar.model_server import FixedAnswer, ModelServer, last_user_text


class Echo(EvalEnvironment):
    """Asks for numbers; what is in ``asked`` is the text of the questions."""

    name = "echo"

    def __init__(self, size=5, asked="Say {}.", metadata=None):
        super().__init__()
        self.size, self.asked, self.metadata = size, asked, metadata or {}

    def __len__(self):
        return self.size

    async def seed(self, idx):
        return SeedResult(self.asked.format(idx), str(idx), dict(self.metadata))

    async def verify(self, response, expected, sandbox=None, **metadata):
        return VerifyResult(float(response == expected), response)


class Judged(Echo):
    """Leaves it to a judge, but has a reward of its own."""

    async def verify(self, response, expected, sandbox=None, **metadata):
        return VerifyResult(1.0, None, {"needs_judge": True})


class Flaky:
    """Solves; what happens at a problem, and how often, is said."""

    def __init__(self, **errors):
        self.errors, self.asked = {name[1:]: error for name, error in errors.items()}, Counter()

    async def solve(self, task):
        self.asked[task.expected_answer] += 1
        if (error := self.errors.get(task.expected_answer)) is not None:
            raise error
        return SolveResult(task.expected_answer, trajectory=[{"role": "assistant", "content": task.expected_answer}])


def rewards(bundle):
    return [row["reward"] for row in bundle["_results"]]


@pytest.fixture
async def endpoint():
    """Starts an endpoint that says the number of a question, or what ``statuses`` has for it, a status a time."""
    runners, asked = [], []

    async def start(statuses):
        async def chat(request):
            number = last_user_text((await request.json())["messages"]).split()[-1].strip(".")
            asked.append(number)
            if left := statuses.get(number):
                return web.json_response({"error": {"message": "no"}}, status=left.pop(0), headers={"Retry-After": "1"})
            message = {"role": "assistant", "content": number}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            return web.json_response(
                {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            )

        application = web.Application()
        application.router.add_post("/v1/chat/completions", chat)
        runners.append(web.AppRunner(application))
        await runners[-1].setup()
        site = web.TCPSite(runners[-1], "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runners[-1].addresses[0][1]}/v1", asked

    yield start
    for runner in runners:
        await runner.cleanup()


class TestBenchmarks:
    """4.2 and 4.3."""

    def test_a_second_benchmark_of_a_name_is_said_also_in_one_file_and_in_other_capitals(self, tmp_path, caplog):
        file = tmp_path / "shadowing.py"
        file.write_text(
            "from nightjar.compat.nemo import EvalEnvironment, benchmark, register\n"
            "for name, target in (('Same', '1'), ('other', '1')):\n"
            "    benchmark(name=name, dataset=[{'target': target}])(lambda sample: 1.0)\n"
            "@register('SAME')\n"
            "class Same(EvalEnvironment):\n"
            "    async def seed(self, idx): ...\n"
            "    async def verify(self, response, expected, sandbox=None, **metadata): ...\n"
        )
        load_benchmark_file(str(file))
        [said] = caplog.messages
        assert "Benchmark 'SAME' is defined twice" in said

    def test_a_file_that_is_read_again_says_nothing(self, tmp_path, caplog):
        file = tmp_path / "read_again.py"
        file.write_text(
            "from nightjar.compat.nemo import benchmark\nbenchmark('again', [{'target': '1'}])(lambda _: 1.0)\n"
        )
        for _ in range(2):
            assert load_benchmark_file(str(file)) == ["again"]
        assert not caplog.messages

    @pytest.mark.parametrize(("name", "text"), [("r.csv", "q,a\n1,2\n3,4\n"), ("r.tsv", "q\ta\n1\t2\n3\t4\n")])
    def test_the_first_so_many_rows_of_a_table_are_what_was_asked_for(self, tmp_path, name, text):
        (tmp_path / name).write_text(text)
        assert load_rows(name, 1, tmp_path) == [{"q": "1", "a": "2"}]

    def test_an_endpoint_that_a_benchmark_cannot_be_meant_for_is_an_error(self):
        with pytest.raises(ConfigError, match=r"unknown endpoint_type 'vlm'\. Choose one of: chat, completions"):
            ByobEnvironment(BenchmarkDefinition("b", [{"target": "1"}], "", endpoint_type="vlm"))

    def test_an_unknown_name_is_an_error_with_what_there_is(self):
        with pytest.raises(ValueError, match=r"'arithmetik'.*arithmetic"):
            get_environment("arithmetik")

    async def test_metadata_may_be_called_as_the_arguments_of_verify_are(self):
        taken = {"response": "a", "expected": "b", "sandbox": "c", "self": "d", "category": "e"}
        bundle = await run_evaluation(Echo(2, metadata=taken), Flaky())
        assert rewards(bundle) == [1.0, 1.0]
        assert bundle["_results"][0]["metadata"] == taken

    @pytest.mark.parametrize("messages", [None, [{"role": "system", "content": "Own."}]])
    async def test_a_system_prompt_that_is_asked_for_takes_the_place_of_the_benchmarks(self, messages):
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
            await run_evaluation(Own(1), ChatSolver(ModelClient(server.url, "m"), "Mine."))
            [asked] = server.requests
        assert [message["content"] for message in asked.body["messages"]] == ["Mine.", "Say 0."]


class TestTheClient:
    """4.4."""

    async def test_who_waits_for_another_try_holds_no_place(self, endpoint):
        url, asked = await endpoint({"0": [429]})
        bundle = await run_evaluation(Echo(), ChatSolver(ModelClient(url, "m", max_concurrent=1)))
        assert rewards(bundle) == [1.0] * 5
        assert asked[0] == asked[-1] == "0", "the others were asked while it waited"
        assert bundle["_artifacts"].runtime.total_retries == 1

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
    async def test_a_request_that_is_refused_for_its_own_sake_is_not_made_again(self, endpoint, status):
        url, asked = await endpoint({"1": [status] * 9})
        bundle = await run_evaluation(Echo(), ChatSolver(ModelClient(url, "m")))
        assert rewards(bundle) == [1.0, None, 1.0, 1.0, 1.0]
        assert Counter(asked) == {str(number): 1 for number in range(5)}
        assert "infra_error" not in bundle["_artifacts"].failures.categories

    async def test_a_client_that_lets_fewer_requests_through_says_so(self, caplog):
        with ModelServer(FixedAnswer("0")) as server:
            await run_evaluation(Echo(1), ChatSolver(ModelClient(server.url, "m", max_concurrent=4)), max_concurrent=9)
            assert "4 concurrent requests (max_concurrent), for 9 concurrent problems" in caplog.text
            caplog.clear()
            await run_evaluation(Echo(1), ChatSolver(ModelClient(server.url, "m", max_concurrent=9)), max_concurrent=9)
        assert not caplog.messages

    async def test_a_client_asks_on_after_an_evaluation_and_after_it_was_closed(self):
        with ModelServer(FixedAnswer("0")) as server:
            client = ModelClient(server.url, "m")
            solver = ChatSolver(client)
            assert rewards(await run_evaluation(Echo(1), solver)) == [1.0]
            await solver.close()
            assert (await client.chat("0?")).content == "0"


class TestTheLoop:
    """4.5."""

    async def test_a_problem_that_breaks_takes_no_other_with_it_whatever_is_said_of_failures(self):
        for skip_failed in (False, True):
            solver = Flaky(_1=KeyError("a bug"), _3=InfraError("away"))
            bundle = await run_evaluation(Echo(), solver, skip_failed=skip_failed, max_system_retries=2)
            assert rewards(bundle) == [1.0, None, 1.0, None, 1.0]
            assert (solver.asked["1"], solver.asked["3"]) == (1, 2), "a bug does not heal"

    async def test_an_endpoint_that_is_away_is_an_error_and_never_a_score(self, tmp_path):
        client = ModelClient("http://127.0.0.1:9/v1", "m", retry=RetryConfig(max_retries=0))
        with pytest.raises(RunAbortedError, match="the first 5 requests failed"):
            await run_evaluation(Echo(), ChatSolver(client), max_system_retries=2, step_log_dir=tmp_path)
        healed = await run_evaluation(Echo(2), Flaky(_0=InfraError("away")), max_system_retries=1)
        scores = healed["benchmark"]["scores"]
        assert (scores["mean_reward"]["value"], scores["coverage"]["value"]) == (1.0, 0.5)

    async def test_results_come_in_the_order_of_the_problems_with_all_their_repeats(self):
        class LastFirst(Flaky):
            async def solve(self, task):
                if task.expected_answer == "0":
                    await asyncio.sleep(0.05)
                return await super().solve(task)

        bundle = await run_evaluation(Echo(3), LastFirst(), n_repeats=2)
        places = [(row["problem_idx"], row["repeat"]) for row in bundle["_results"]]
        assert places == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
        assert (bundle["benchmark"]["repeats"], bundle["benchmark"]["samples"]) == (2, 3)

    @pytest.mark.parametrize(
        ("other", "named"),
        [
            ({"model": "n"}, "model"), ({"seed": 8}, "sampling_args"), ({"stop": ["x"]}, "sampling_args"),
            ({"presence_penalty": 0.1}, "sampling_args"), ({"temperature": 1.0}, "sampling_args"),
            ({"base_url": "http://127.0.0.1:9/v1"}, "base_url"), ({"reasoning_pattern": "<.*>"}, "env_args"),
        ],
    )  # fmt: skip
    async def test_a_resume_with_another_client_gives_no_old_scores(self, tmp_path, other, named):
        with ModelServer(FixedAnswer("0")) as server:
            said = {"base_url": server.url, "model": "m", "seed": 7, "temperature": 0.0}
            await run_evaluation(Echo(2), ChatSolver(ModelClient(**said)), step_log_dir=tmp_path)
            with pytest.raises(ResumeMismatchError, match=f": {named}: saved"):
                await run_evaluation(
                    Echo(2), ChatSolver(ModelClient(**said | other)), step_log_dir=tmp_path, resume=True
                )
            assert server.stats().received == 2

    @pytest.mark.parametrize(
        ("made", "other"),
        [
            (VLMSolver, {"image_detail": "low"}), (ReActSolver, {"max_turns": 2}),
            (ReActSolver, {"generation": {"temperature": 0.5}}), (ChatSolver, {"system_prompt": "Be brief."}),
        ],
    )  # fmt: skip
    async def test_a_resume_with_another_solver_gives_no_old_scores(self, tmp_path, made, other):
        with ModelServer(FixedAnswer("0")) as server:
            client = ModelClient(server.url, "m")
            await run_evaluation(Echo(1), made(client), step_log_dir=tmp_path)
            await run_evaluation(Echo(1), made(client), step_log_dir=tmp_path, resume=True)
            with pytest.raises(ResumeMismatchError, match=next(iter(other))):
                await run_evaluation(Echo(1), made(client, **other), step_log_dir=tmp_path, resume=True)
            assert server.stats().received == 1

    async def test_a_resume_of_other_questions_gives_no_old_scores(self, tmp_path):
        await run_evaluation(Echo(3), Flaky(), step_log_dir=tmp_path)
        for env in (Echo(3, "Tell {}."), Echo(3, metadata={"version": 2})):
            with pytest.raises(ResumeMismatchError, match="dataset_fingerprint"):
                await run_evaluation(env, Flaky(), step_log_dir=tmp_path, resume=True)
        more = Flaky()
        await run_evaluation(Echo(5), more, step_log_dir=tmp_path, resume=True)
        assert set(more.asked) == {"3", "4"}, "problems may be added"

    def test_solvers_say_what_they_ask(self):
        assert GymSolver("h:1").settings["gym_url"] != GymSolver("h:2").settings["gym_url"]
        assert "sk-secret" not in str(GymSolver("h:1", api_key="sk-secret").settings)

    async def test_rows_that_are_gone_on_with_have_all_that_new_ones_have(self, tmp_path):
        first = await run_evaluation(Echo(2), Flaky(), step_log_dir=tmp_path)
        again = await run_evaluation(Echo(2), Flaky(), step_log_dir=tmp_path, resume=True)
        assert again["_results"] == first["_results"]
        assert {"scorer_rewards", "trajectory"} <= again["_results"][0].keys()

    async def test_a_judge_that_is_missing_or_breaks_leaves_no_reward(self):
        class Broken:
            async def chat(self, prompt):
                raise ConnectionError("away")

        for judge in (None, Broken()):
            bundle = await run_evaluation(Judged(1), Flaky(), judge_client=judge)
            assert rewards(bundle) == [None]
        with ModelServer(FixedAnswer('{"score": 2}')) as server:
            bundle = await run_evaluation(Judged(1), Flaky(), judge_client=ModelClient(server.url, "j"))
        assert rewards(bundle) == [0.4]

    async def test_further_scorers_are_refused_and_not_left_out(self):
        with pytest.raises(ConfigError, match="config\\['scorers'\\]"):
            await run_evaluation(Echo(), OracleSolver(), config={"scorers": ["exact_match"]})

    async def test_nothing_to_ask_is_no_run_that_went_well(self):
        for how in ({"max_problems": 0}, {"problem_range": (7, 9)}, {"n_repeats": 0}):
            with pytest.raises(DatasetError, match="Nothing to evaluate"):
                await run_evaluation(Echo(), OracleSolver(), **how)


class TestScores:
    """4.6 and 4.7."""

    async def test_one_repeat_has_an_interval(self):
        bundle = await run_evaluation(Echo(10), Flaky())
        assert bundle["benchmark"]["scores"]["pass@1"]["ci_lower"] == pytest.approx(0.7225, abs=1e-4)  # Wilson's

    async def test_nothing_that_failed_is_written_down_as_well(self, tmp_path):
        paths = write_all(await run_evaluation(Echo(2), Flaky()), tmp_path)
        assert json.loads(paths["failure_analysis"].read_text())["total_failures"] == 0

    async def test_a_right_answer_that_sounds_like_a_refusal_is_none(self):
        class Polite(Echo):
            async def verify(self, response, expected, sandbox=None, **metadata):
                return VerifyResult(float(expected in response), response)

        with ModelServer(FixedAnswer("I'm sorry, I cannot say it better: 1")) as server:
            bundle = await run_evaluation(Polite(2), ChatSolver(ModelClient(server.url, "m")))
        failures = bundle["_artifacts"].failures.to_dict()
        assert (rewards(bundle), failures["total_failures"]) == ([0.0, 1.0], 1)
        assert failures["categories"]["refusal"]["count"] == 1

    async def test_of_a_step_that_two_shards_have_the_last_counts_and_they_stay_as_they_are(self, tmp_path):
        for shard, solver in enumerate((Flaky(_0=KeyError("a bug")), Flaky())):
            write_all(await run_evaluation(Echo(2), solver, problem_range=(0, 2)), tmp_path / f"shard_{shard}")
        folders = [tmp_path / "shard_0", tmp_path / "shard_1"]
        before = [(folder / "results.jsonl").read_bytes() for folder in folders]
        merged = merge_results(folders, tmp_path / "merged")
        assert rewards(merged) == [1.0, 1.0]
        assert [(folder / "results.jsonl").read_bytes() for folder in folders] == before
        assert {"runtime_stats.json", "failure_analysis.json"} <= {
            path.name for path in (tmp_path / "merged").iterdir()
        }

    async def test_what_one_side_has_not_asked_is_told(self):
        few, all_ = [await run_evaluation(Echo(size), Flaky(), n_repeats=2) for size in (12, 20)]
        found = compare_runs(all_, few)["flip_report"]
        assert (found["n_paired"], found["unpaired"]["baseline"]) == (12, 8)


class TestScorers:
    """4.9."""

    def test_code_without_a_sandbox_is_no_wrong_answer(self, monkeypatch, tmp_path):
        monkeypatch.setenv("NIGHTJAR_SANDBOX", "docker")
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        row = {"test": "def check(candidate): pass", "entry_point": "f"}
        with pytest.raises(SandboxError):
            code_sandbox(ScorerInput("def f(): pass", "", row))
