"""``run_evaluation``, its solvers and bundles: the names of NeMo Evaluator on Nightjar's engine."""

import asyncio
import json

import orjson
import pytest

from nightjar.compat import nemo
from nightjar.core.failures import category_of_answer
from nightjar.core.secrecy import note_secrets
from nightjar.environments.seeded.eval_environment import EvalEnvironment
from nightjar.errors import ConfigError, DatasetError, ResumeMismatchError, TurnLimitError
from nightjar.importers import convert, find_results
from nightjar.model_server import Faults, FixedAnswer, ModelServer, Script, tool_call

pytestmark = pytest.mark.slow


class Sums(EvalEnvironment):
    """Problems with the answers 0, 1, 2, …"""

    name = "sums"

    def __init__(self, size=6):
        super().__init__()
        self.size, self.seeds, self.closed = size, 0, 0

    def __len__(self):
        return self.size

    async def seed(self, idx):
        self.seeds += 1
        return nemo.SeedResult(f"0+{idx}?", str(idx), {"category": "odd" if idx % 2 else "even"}, system="Add.")

    async def verify(self, response, expected, sandbox=None, **metadata):
        return nemo.VerifyResult(
            float(response == expected), response, {"method": "exact", "is_right": response == expected}
        )

    async def close(self):
        self.closed += 1


class Wrong:
    """Answers odd problems wrong, and others with ``on_even``."""

    def __init__(self, on_even=None):
        self.on_even, self.solved = on_even or (lambda task: nemo.SolveResult(task.expected_answer)), []

    async def solve(self, task):
        self.solved.append(task.expected_answer)
        return nemo.SolveResult("wrong") if int(task.expected_answer) % 2 else self.on_even(task)


def gone(task):
    from nightjar.compat.nemo.solvers import ErrorKind

    return nemo.SolveResult("", error="gone", error_kind=ErrorKind.INFRA)


async def test_an_evaluation_with_a_model_gives_a_bundle(tmp_path):
    with ModelServer(FixedAnswer("3"), keep_requests=100) as server:
        client = nemo.ModelClient(
            f"{server.url}/chat/completions", "m", api_key="sk-secret-secret", temperature=0.5, seed=7
        )
        env, solver = Sums(), nemo.ChatSolver(client)
        bundle = await nemo.run_evaluation(env, solver, n_repeats=2, config={"note": 1})
        again = await nemo.run_evaluation(env, solver, max_problems=1)
        asked = server.requests
    assert again["benchmark"]["samples"] == 1
    assert client.client.client.api_key == "sk-secret-secret"
    assert asked[0].body["messages"][0] == {"role": "system", "content": "Add."}
    assert sorted(request.body["seed"] for request in asked[:12]) == [7] * 6 + [8] * 6
    benchmark, scores = bundle["benchmark"], bundle["benchmark"]["scores"]
    assert (benchmark["name"], benchmark["samples"], benchmark["repeats"], bundle["n_results"]) == ("sums", 6, 2, 12)
    assert (
        scores["mean_reward"]["value"] == scores["pass@1"]["value"] == scores["pass@2"]["value"] == pytest.approx(1 / 6)
    )
    assert scores["mean_reward"]["ci_lower"] < 1 / 6 < scores["mean_reward"]["ci_upper"]
    assert (scores["coverage"]["value"], scores["errors"]["value"]) == (1.0, 0)
    assert benchmark["categories"]["odd"]["mean_reward"] == pytest.approx(1 / 3)
    assert bundle["config"]["note"] == 1
    assert "sk-secret-secret" not in repr(bundle)
    assert [(row["problem_idx"], row["repeat"]) for row in bundle["_results"]] == [
        (n, r) for n in range(6) for r in (0, 1)
    ]
    row = bundle["_results"][6]
    assert (row["prompt"], row["model_response"], row["expected_answer"], row["reward"]) == ("0+3?", "3", "3", 1.0)
    assert row["scoring_details"] == {"method": "exact", "extracted": "3", "is_right": True}
    paths = nemo.write_all(bundle, tmp_path)
    names = {"failure_analysis.json", "results.jsonl", "runtime_stats.json", "trajectories.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == {*names, f"{bundle['run_id']}.json"}
    step = json.loads(paths["trajectories"].read_text().splitlines()[0])
    assert (step["model"]["finish_reason"], step["system_prompt"]) == ("stop", "Add.")
    stats = json.loads(paths["runtime_stats"].read_text())
    assert (stats["total_steps"], stats["finish_reason_counts"]) == (12, {"stop": 12})
    assert stats["total_tokens"] > 0


async def test_written_files_can_be_imported(tmp_path):
    from nightjar.compat.nemo.engine import bundle_of_run

    solver = Wrong(gone)
    bundle = await nemo.run_evaluation(Sums(), solver, max_system_retries=1, step_log_dir=tmp_path / "logs")
    nemo.write_all(bundle, tmp_path / "run")
    [found] = find_results(tmp_path / "run")
    converted = convert(found, tmp_path / "converted")
    rows = [orjson.loads(line) for line in (converted / "results.jsonl").read_bytes().splitlines()]
    assert [row["reward"] for row in rows] == [None, 0.0] * 3
    assert rows[0]["error"]["error"] == "InfraError"
    [logs] = (tmp_path / "logs").iterdir()
    of_directory = bundle_of_run(logs)
    assert of_directory["_results"] == bundle["_results"]
    assert of_directory["benchmark"] == bundle["benchmark"]


@pytest.mark.slow
@pytest.mark.parametrize("skip_failed", [False, True])
async def test_a_failed_step_has_no_reward_and_does_not_stop_the_others(caplog, skip_failed):
    def broken(task):
        match task.expected_answer:
            case "0":
                raise nemo.InfraError("the tool is away")
            case "2":
                raise nemo.GracefulError("no turns left for key=nvapi-0123456789")
        raise KeyError("a bug")

    solver = Wrong(broken)
    bundle = await nemo.run_evaluation(Sums(), solver, max_system_retries=2, skip_failed=skip_failed)
    rewards = [row["reward"] for row in bundle["_results"]]
    assert rewards == [None, 0.0, 0.0, 0.0, None, 0.0]
    assert solver.solved.count("0") == 2
    assert solver.solved.count("4") == 1
    report = bundle["_artifacts"].failures.to_dict()
    assert {name: found["count"] for name, found in report["categories"].items()} == {
        "infra_error": 1, "graceful": 1, "system": 1
    }  # fmt: skip
    assert "nvapi-0123" not in repr(bundle)
    assert bundle["benchmark"]["scores"]["coverage"] == {"value": 4 / 6, "scored": 4, "total": 6}
    assert ("2 of 6 steps failed" in caplog.text) is not skip_failed


async def test_a_secret_in_an_answer_is_in_no_file(tmp_path):
    note_secrets("sk-planted-0123456789")
    bundle = await nemo.run_evaluation(
        Sums(size=2), Wrong(lambda task: nemo.SolveResult("my key is sk-planted-0123456789"))
    )
    written = nemo.write_all(bundle, tmp_path)
    assert "my key is [secret]" in written["trajectories"].read_text()
    assert b"sk-planted" not in b"".join(path.read_bytes() for path in written.values())


async def test_a_resume_solves_failed_steps_and_refuses_another_solver(tmp_path):
    failing = Wrong(gone)
    first = await nemo.run_evaluation(Sums(), failing, step_log_dir=tmp_path, max_system_retries=1)
    assert first["benchmark"]["scores"]["coverage"]["value"] == 0.5
    healed = Wrong()
    second = await nemo.run_evaluation(Sums(), healed, step_log_dir=tmp_path, resume=True)
    assert sorted(healed.solved) == ["0", "2", "4"]
    assert [row["reward"] for row in second["_results"]] == [1.0, 0.0] * 3
    with pytest.raises(ResumeMismatchError, match="model: saved 'Wrong', asked for 'OracleSolver'"):
        await nemo.run_evaluation(Sums(), nemo.OracleSolver(), step_log_dir=tmp_path, resume=True)
    anew = Wrong()
    await nemo.run_evaluation(Sums(), anew, step_log_dir=tmp_path)
    assert len(anew.solved) == 6


def test_problems_are_chosen_by_range_shard_and_seed():
    from nightjar.compat.nemo.engine.eval_loop import chosen_problems

    assert chosen_problems(10, 6, shard_info=(1, 4)) == [2, 3]
    assert chosen_problems(10, 6, (4, 99), (1, 4), 1) == [4, 5, 6, 7, 8, 9]
    shuffled = chosen_problems(100, shuffle_seed=3)
    assert sorted(shuffled) == [*range(100)] != shuffled
    with pytest.raises(ConfigError, match="no shard 4 of 4"):
        chosen_problems(10, shard_info=(4, 4))


async def test_nothing_to_evaluate_and_unsupported_arguments_are_errors_after_which_the_benchmark_is_closed():
    for how, error, match in [
        ({"max_problems": 0}, DatasetError, "0 problems"), ({"problem_range": (7, 9)}, DatasetError, "0 problems"),
        ({"n_repeats": 0}, DatasetError, "0 repeats"), ({"sandbox_manager": object()}, ConfigError, "sandbox_manager"),
        ({"config": {"scorers": ["best_match"]}}, ConfigError, "Unknown scorer 'best_match'"),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            await nemo.run_evaluation(Sums(), nemo.OracleSolver(), **how)
    env = Sums(0)
    with pytest.raises(DatasetError, match="Nothing to evaluate"):
        await nemo.run_evaluation(env, nemo.OracleSolver())
    assert env.closed == 1


@pytest.mark.slow
async def test_bundles_are_compared(tmp_path):
    good, bad = [await nemo.run_evaluation(Sums(40), solver) for solver in (nemo.OracleSolver(), Wrong())]
    nemo.write_all(good, tmp_path / "a")
    report = nemo.compare_runs(f"{tmp_path}/a/eval-*.json", bad)
    assert (report["verdict"], report["score_deltas"]["mean_reward"]["delta"]) == ("BLOCK", -0.5)
    assert report["flip_report"]["contingency"] == {
        "both_correct": 20, "baseline_only_correct": 20, "candidate_only_correct": 0, "both_wrong": 0
    }  # fmt: skip
    assert nemo.compare_runs(bad, good)["verdict"] == "PASS"


async def test_an_earlier_run_in_a_folder_keeps_its_files_together(tmp_path):
    first, second = [await nemo.run_evaluation(Sums(size), nemo.OracleSolver()) for size in (2, 3)]
    for bundle in (first, second, second):
        nemo.write_all(bundle, tmp_path)
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3
    assert len((tmp_path / first["run_id"] / "results.jsonl").read_text().splitlines()) == 2
    assert json.loads((tmp_path / "failure_analysis.json").read_text())["total_failures"] == 0


async def test_solvers_for_images_texts_and_tools():
    class Tools:
        async def list_tools(self):
            parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
            return [{"type": "function", "function": {"name": "double", "description": "", "parameters": parameters}}]

        async def call_tool(self, name, arguments):
            return {"double": 2 * arguments["a"]}

    task = nemo.SeedResult("What is it?", "42", images=["https://example.com/a.png"])
    with ModelServer(FixedAnswer("42"), keep_requests=20) as server:
        client = nemo.ModelClient(server.url, "m", reasoning_pattern="4")
        assert (await nemo.VLMSolver(client, image_detail="low").solve(task)).response == "2"
        plain = await nemo.CompletionSolver(server.url, "m", max_tokens=5).solve(
            nemo.SeedResult("So", "", system="Go on.")
        )
        asked = server.requests
    assert asked[0].body["messages"][0]["content"][0]["image_url"]["detail"] == "low"
    assert (plain.response, asked[1].body["prompt"]) == ("42", "Go on.\n\nSo")
    answers = Script([tool_call("double", a=21), "It is 42"])
    with ModelServer(answers, keep_requests=20) as server:
        solved = await nemo.ReActSolver(nemo.ModelClient(server.url, "m"), Tools(), system_prompt="Use tools.").solve(
            task
        )
        told = server.requests[1].body["messages"]
    assert solved.response == "It is 42"
    assert (told[-1]["role"], told[-1]["content"]) == ("tool", '{"double": 42}')
    assert [message["role"] for message in solved.trajectory] == ["assistant", "tool", "assistant"]


async def test_values_that_json_cannot_express_are_written_as_text(tmp_path):
    class Odd(Sums):
        async def seed(self, idx):
            return nemo.SeedResult("?", str(idx), {5: "a number", "many": {1}})

        async def verify(self, response, expected, sandbox=None, **metadata):
            return nemo.VerifyResult(1.0, None, {"columns": sorted(metadata), "kind": int, "many": {1}})

    bundle = await nemo.run_evaluation(Odd(2), nemo.OracleSolver(), step_log_dir=tmp_path / "logs")
    nemo.write_all(bundle, tmp_path / "out")
    details = bundle["_results"][0]["scoring_details"]
    own = {"columns": ["5", "many"], "kind": "<class 'int'>", "many": "{1}"}
    assert details == {"method": "byob_sums", "extracted": None, **own}


def test_a_benchmark_is_closed_after_each_evaluation():
    parts = Sums(2), Sums(2)
    env = nemo.CompositeEnvironment(*parts)
    for times in (1, 2):
        asyncio.run(nemo.run_evaluation(env, nemo.OracleSolver()))
        assert [part.closed for part in parts] == [times] * 2


async def test_further_scorers_give_metrics_and_leave_the_reward():
    class Letters(Sums):
        async def seed(self, idx):
            return nemo.SeedResult(f"{idx}?", "ABBA"[idx])

        async def verify(self, response, expected, sandbox=None, **metadata):
            return nemo.VerifyResult(0.25)

    config = {"scorers": ["mcq_extract", "exact_match"]}
    with ModelServer(FixedAnswer("The answer is (A)")) as server:
        solver = nemo.ChatSolver(nemo.ModelClient(server.url, "m"))
        bundle = await nemo.run_evaluation(Letters(4), solver, config=config)
    scores = bundle["benchmark"]["scores"]
    assert (scores["mean_reward"]["value"], scores["scorer:mcq_extract"]["value"]) == (0.25, 0.5)
    assert (scores["scorer:mcq_extract"]["correct"], scores["scorer:mcq_extract"]["total"]) == (2, 4)
    assert scores["scorer:exact_match"]["value"] == 0.0
    assert bundle["config"]["scorers"] == config["scorers"]
    row = bundle["_results"][0]
    assert row["scorer_rewards"] == {"scorer:mcq_extract": 1.0, "scorer:exact_match": 0.0}
    assert row["scoring_details"]["scorer:mcq_extract"] == {"correct": True, "reward": 1.0}


async def test_a_prompt_that_is_too_long_makes_an_answer_wrong():
    with ModelServer(FixedAnswer("0"), max_context_tokens=1) as server:
        bundle = await nemo.run_evaluation(Sums(2), nemo.ChatSolver(nemo.ModelClient(server.url, "m")))
    assert [row["reward"] for row in bundle["_results"]] == [0.0, 0.0]
    assert [*bundle["_artifacts"].failures.categories] == ["context_window_exceeded"]


async def test_a_model_that_only_calls_tools_or_has_had_its_turns_is_wrong():
    with ModelServer(Script(lambda _: tool_call("double", a=1))) as server:
        solver = nemo.ReActSolver(nemo.ModelClient(server.url, "m"), max_turns=3)
        bundle = await nemo.run_evaluation(Sums(1), solver)
    [row] = bundle["_results"]
    assert (row["reward"], row["scoring_details"]["error_category"]) == (0.0, "turn_budget_exhausted")
    assert len(row["trajectory"]) == 6

    def limited(task):
        raise TurnLimitError("The rollout has had its 2 turns")

    [row] = (await nemo.run_evaluation(Sums(1), Wrong(limited)))["_results"]
    assert (row["reward"], row["scoring_details"]["error_category"]) == (0.0, "turn_budget_exhausted")


async def test_retries_are_counted_and_later_rows_may_have_further_categories():
    class Late(Sums):
        async def seed(self, idx):
            seed = await super().seed(idx)
            seed.metadata = {"category": "late"} if idx else {}
            return seed

    from nightjar.compat.nemo.engine.model_client import RetryConfig

    with ModelServer(FixedAnswer("0"), faults=Faults(rate_500=0.25, seed=3)) as server:
        client = nemo.ModelClient(server.url, "m", retry=RetryConfig(20))
        bundle = await nemo.run_evaluation(Late(8), nemo.ChatSolver(client))
        refused = server.stats().received - 8
    assert bundle["_artifacts"].runtime.total_retries == refused > 0
    assert bundle["benchmark"]["categories"]["late"]["n"] == 7


def test_only_wrong_answers_are_refusals():
    assert category_of_answer(1.0, "I cannot say it better: 4", {}, "4") is None
    assert category_of_answer(0.0, "I cannot help with that", {}, None) == "refusal"
    assert category_of_answer(0.0, "Hm", {}, None) == "format_error"
