"""What a run took and why it failed, in SQL: by hand, and the same as in the files of NeMo Evaluator."""

import json

import pytest

from nightjar.clients import ClientConfig
from nightjar.compat import nemo
from nightjar.core.failures import category_of_error
from nightjar.environments import ToolEnv
from nightjar.environments.rubrics import Rubric
from nightjar.warehouse import Warehouse


@pytest.fixture(scope="module")
def served():
    from nightjar import model_server

    return model_server


@pytest.fixture
def ask(tmp_path):
    """Publishes a run directory, and asks."""

    def ask(run_dir, statement):
        warehouse = Warehouse(tmp_path / "warehouse")
        warehouse.publish(run_dir, tidies=False)
        return warehouse.query(statement).records()

    return ask


def same_as_files(ask, run_dir, folder):
    """Compares both views with both files."""
    from nightjar.compat.nemo.engine import bundle_of_run

    paths = nemo.write_all(bundle_of_run(run_dir), folder)
    stats = json.loads(paths["runtime_stats"].read_text())
    [told] = ask(run_dir, "FROM runtime_stats")
    percentiles = {f"latency_{name}_ms": value for name, value in stats.pop("latency_percentiles_ms").items()}
    for name, value in {**stats, **percentiles}.items():
        expected = pytest.approx(value, abs=1e-3, rel=1e-6) if isinstance(value, int | float) else value
        assert told[name] == expected, name
    report = json.loads(paths["failure_analysis"].read_text())
    rows = {row["category"]: row for row in ask(run_dir, "FROM failures")}
    assert {name: (row["count"], row["percentage"]) for name, row in rows.items()} == {
        name: (record["count"], pytest.approx(record["percentage"])) for name, record in report["categories"].items()
    }
    for name, record in report["categories"].items():
        places = [(one["problem_idx"], one["repeat"]) for one in record["exemplars"]]
        assert [(one["example_id"], one["rollout_index"]) for one in rows[name]["exemplars"]] == places
    return told, rows


@pytest.fixture(scope="module")
def riddles():
    """Of which the first is answered right, the second is refused, and in the third nothing is found."""

    class Riddles(nemo.EvalEnvironment):
        name = "riddles"

        def __len__(self):
            return 3

        async def seed(self, idx):
            return nemo.SeedResult(f"Riddle {idx}?", str(idx))

        async def verify(self, response, expected, sandbox=None, **metadata):
            return nemo.VerifyResult(float(expected == "0"), "I cannot" if expected == "0" else None)

    return Riddles()


async def test_tokens_cost_what_the_warehouse_says(tmp_path, monkeypatch, nightjar, served, riddles):
    monkeypatch.setenv("NIGHTJAR_WAREHOUSE", str(tmp_path / "warehouse"))
    with served.ModelServer(served.FixedAnswer("4")) as server:
        solver = nemo.ChatSolver(nemo.ModelClient(server.base_url, "m"))
        bundle = await nemo.run_evaluation(riddles, solver, step_log_dir=tmp_path / "logs")
    assert "cost" not in json.loads(nemo.write_all(bundle, tmp_path / "a")["runtime_stats"].read_text())
    [run_dir] = (tmp_path / "logs").iterdir()
    Warehouse(tmp_path / "warehouse").publish(run_dir, tidies=False)
    assert nightjar("warehouse", "prices", "set", "m", "--input", "2000", "--output", "10000").code == 0
    stats = json.loads(nemo.write_all(bundle, tmp_path / "b")["runtime_stats"].read_text())
    given, answered = stats["total_prompt_tokens"] * 0.002, stats["total_completion_tokens"] * 0.01
    assert stats["cost"] == {
        "prompt_cost": pytest.approx(given), "completion_cost": pytest.approx(answered),
        "total_cost": pytest.approx(given + answered), "currency": "USD",
        "price_per_1k_prompt": 2.0, "price_per_1k_completion": 10.0,
    }  # fmt: skip


async def test_an_evaluation_has_the_numbers_of_its_files(ask, tmp_path, served, riddles):
    answers = {"0": "I cannot say it better", "1": "I'm sorry, I cannot help", "2": "Hm"}
    script = served.Script(lambda messages: answers[messages[-1]["content"][7]])
    with served.ModelServer(script, faults=served.Faults(rate_429=0.3, retry_after_seconds=0, seed=1)) as server:
        client = nemo.ModelClient(server.base_url, "m")
        await nemo.run_evaluation(riddles, nemo.ChatSolver(client), n_repeats=4, step_log_dir=tmp_path / "logs")
    [run_dir] = (tmp_path / "logs").iterdir()
    told, rows = same_as_files(ask, run_dir, tmp_path / "files")
    assert {name: row["count"] for name, row in rows.items()} == {"refusal": 4, "format_error": 4}
    assert (told["total_steps"], told["finish_reason_counts"]) == (12, {"stop": 12})
    assert told["total_retries"] > 0


def test_a_run_of_several_turns_has_the_sums_of_its_calls(ask, tmp_path, served):
    def look() -> str:
        """Looks."""
        return "nothing"

    env = ToolEnv(tools=[look], dataset=[{"question": "Where?"}] * 3, rubric=Rubric([lambda state: 0.0]))
    with served.ModelServer(served.Script([*(served.tool_call("look") for _ in range(2)), "There."])) as server:
        config = ClientConfig(api_base_url=server.base_url, middleware=[{"use": "turn_limit", "turns": 2}])
        env.evaluate_sync(config, "m", rollouts_per_example=1, results_path=tmp_path / "run")
    told, rows = same_as_files(ask, tmp_path / "run", tmp_path / "files")
    assert told["finish_reason_counts"] == {"tool_calls": 3}
    assert rows["turn_budget_exhausted"]["count"] == 3
    joined = "SELECT steps.model_ms, trajectory FROM steps JOIN rollouts USING (run_id, example_id)"
    steps = ask(tmp_path / "run", joined)
    assert len(steps) == 3
    for step in steps:
        assert step["model_ms"] == pytest.approx(sum(call["latency_ms"] for call in json.loads(step["trajectory"])))


def test_percentiles_are_those_that_are_counted_by_hand(ask, tmp_path, run_writer):
    rows = [run_writer.rollout(example, 0, 1.0) for example in range(11)]
    for row in rows:
        row["timing"] = {"generation_ms": 10.0 * row["example_id"], "scoring_ms": 2.0, "total_ms": 100.0}
    rows.append(run_writer.failed(11, 0))
    run_dir = run_writer.write(tmp_path / "run", rows, run_id="one", time_ms=4000.0, requests={"again": 7})
    [told] = ask(run_dir, "FROM runtime_stats")
    # 0, 10, …, 100: the median is 50, and of eleven values in order number 9 and 9.9, counted from 0
    assert [told[f"latency_p{p}_ms"] for p in (50, 90, 99)] == [50.0, 90.0, pytest.approx(99.0)]
    assert (told["elapsed_seconds"], told["steps_per_second"], told["total_retries"]) == (4.0, 3.0, 7)
    assert (told["model_errors"], told["total_steps"]) == (1, 12)
    [first, *_] = ask(run_dir, "SELECT verify_ms, total_ms, failure_category FROM steps ORDER BY example_id")
    assert first == {"verify_ms": 2.0, "total_ms": 100.0, "failure_category": None}


CHAINS = {
    "ModelError -> RateLimitError": "rate_limit", "ModelError -> APITimeoutError": "model_timeout",
    "TimeoutError": "solve_timeout", "ModelError -> InternalServerError": "server_error",
    "OverlongPromptError -> BadRequestError": "context_window_exceeded",
    "SandboxError": "infra_error", "ToolCallError -> ToolError": "tool_infra",
    "ModelError -> APIConnectionError": "model_error", "EmptyModelResponseError": "model_error",
    "ScoringError -> KeyError": "system",
}  # fmt: skip


def test_errors_have_the_categories_of_the_files(ask, tmp_path, run_writer):
    assert [category_of_error({"error_chain_repr": chain}) for chain in CHAINS] == [*CHAINS.values()]
    errors = [{**run_writer.failure, "error_chain_repr": chain} for chain in CHAINS]
    rows = [run_writer.failed(example, 0, error=error) for example, error in enumerate(errors)]
    run_dir = run_writer.write(tmp_path / "run", rows, run_id="one")
    steps = ask(run_dir, "SELECT failure_category FROM steps ORDER BY example_id")
    assert [step["failure_category"] for step in steps] == [*CHAINS.values()]


def test_answers_from_the_cache_are_counted(tmp_path, monkeypatch, nightjar, served):
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))
    with served.ModelServer(served.FixedAnswer("4")) as server:
        typed = ("eval run arithmetic -m m -n 2 -r 1 --cache --direct -b", server.base_url)
        for number in range(2):
            nightjar(*" ".join(typed).split(), "-o", tmp_path / str(number), "--warehouse", tmp_path / "warehouse")
    found = Warehouse(tmp_path / "warehouse").query("SELECT cached_calls FROM runtime_stats ORDER BY cached_calls")
    assert found.rows == [(0,), (2,)]
