"""Results of verifiers (0.1.4 to 0.1.14) and of NeMo Evaluator become run directories for the warehouse."""

import json
import os
import shutil
from pathlib import Path

import pytest

from nightjar.environments.data import Examples, example_hash
from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse


@pytest.fixture(scope="module")
def importers():
    from nightjar import importers

    return importers


RECORDED = Path(__file__).parents[1] / "side_by_side" / "recorded"
START = 1_767_225_600.5  # 2026-01-01T00:00:00.500 UTC


def sum_row(example_id=0, reward=1.0, **changed):
    """Returns a row of verifiers 0.1.14."""
    start = START + example_id
    row = {
        "example_id": example_id,
        "prompt": [{"role": "user", "content": f"What is {example_id} + 2?"}],
        "completion": [{"role": "assistant", "content": "4"}],
        "answer": f"{example_id + 2}", "info": {"level": 1}, "reward": reward, "error": None,
        "timing": {
            "start_time": start,
            "setup": {"start": 0.0, "end": 0.0, "duration": 0.0},
            "generation": {"start": start, "end": start + 1.5, "duration": 1.5},
            "scoring": {"start": start + 1.5, "end": start + 1.75, "duration": 0.25},
            "total": 1.75,
        },
        "is_completed": True, "is_truncated": False, "stop_condition": "max_turns_reached",
        "metrics": {"correct": reward, "num_turns": 1.0}, "tool_defs": [],
        "token_usage": {"input_tokens": 11.0, "output_tokens": 7.0}, "correct": reward, "num_turns": 1.0,
    }  # fmt: skip
    return row | changed


SUMS = {
    "env_id": "sums",
    "env_args": {"difficulty": "easy", "judge_api_key": "sk-not-for-others"},
    "model": "openai/gpt-4.1-mini",
    "base_url": "https://user:password@api.example.com/v1",
    "num_examples": 2, "rollouts_per_example": 2,
    "sampling_args": {"temperature": 0.7, "max_tokens": 512, "extra_headers": {"Authorization": "Bearer abc"}},
    "time": 12.5, "avg_reward": 0.25, "avg_metrics": {"correct": 0.25, "num_turns": 1.0}, "avg_error": 0.25,
    "pass_at_k": {"1": 0.25}, "pass_threshold": 0.5, "usage": {"input_tokens": 11.0, "output_tokens": 7.0},
    "version_info": {"vf_version": "0.1.14", "vf_commit": None, "env_version": "1.2.0", "env_commit": None},
    "state_columns": [],
}  # fmt: skip
ROW = {
    "advantage": 0.0, "error": None, "is_completed": True, "is_truncated": False, "attempts": None, "model": None,
}  # fmt: skip
"""Fields that the converted rows of both programs share."""
MODEL_ERROR = {
    "error": "ModelError",
    "error_chain_repr": "ModelError('overloaded') -> RateLimitError('429 Too Many Requests')",
    "error_chain_str": "ModelError -> RateLimitError",
}


def write_lines(path, rows):
    """Writes JSON lines as Python's json does."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def verifiers_run(tmp_path):
    """Writes a folder of verifiers."""

    def write(*rows, folder="evals/sums--openai--gpt-4.1-mini/1a2b3c4d", **metadata):
        path = tmp_path / "outputs" / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / "metadata.json").write_text(json.dumps(SUMS | metadata))
        write_lines(path / "results.jsonl", rows)
        return path

    return write


@pytest.fixture
def imported(tmp_path, importers):
    """Converts the only results at a path, and reads them: metadata and rows."""

    def read(path):
        [found] = importers.find_results(path)
        run_dir = importers.convert(found, tmp_path / "scratch")
        metadata = json.loads((run_dir / "metadata.json").read_bytes())
        assert run_dir.name == metadata["run_id"]
        assert sorted(file.name for file in run_dir.iterdir()) == ["metadata.json", "results.jsonl"]
        return metadata, [json.loads(line) for line in (run_dir / "results.jsonl").read_bytes().splitlines()]

    return read


@pytest.fixture
def reads(imported, verifiers_run):
    """Returns the rows that rows of verifiers become."""
    return lambda *rows, **metadata: imported(verifiers_run(*rows, **metadata))[1]


class TestVerifiers:
    def test_a_row_of_verifiers_becomes_a_row_of_nightjar(self, reads):
        [row] = reads(sum_row())
        question = {"question": "What is 0 + 2?", "answer": "2", "info": {"level": 1}}
        assert row == ROW | {
            "example_id": 0, "rollout_index": 0, "example_hash": example_hash(Examples([question])[0]),
            "prompt": [{"role": "user", "content": "What is 0 + 2?"}],
            "completion": [{"role": "assistant", "content": "4"}],
            "answer": "2", "info": {"level": 1}, "reward": 1.0, "metrics": {"correct": 1.0, "num_turns": 1.0},
            "timing": {"generation_ms": 1500.0, "scoring_ms": 250.0, "total_ms": 1750.0},
            "stop_condition": "max_turns_reached", "token_usage": {"input_tokens": 11, "output_tokens": 7},
        }  # fmt: skip

    def test_the_metadata_of_verifiers_with_aggregates_of_nightjar(self, imported, verifiers_run):
        failed = sum_row(1, 0.0, error=MODEL_ERROR)
        metadata, _ = imported(verifiers_run(sum_row(), sum_row(0, 0.0), failed, sum_row(1, 0.0)))
        assert metadata.pop("run_id").startswith("verifiers-")
        assert len(metadata.pop("dataset_fingerprint")) == 16
        assert metadata.pop("digest")
        assert metadata.pop("stderr") == pytest.approx(
            2 / 9
        )  # residuals 1/3 and -1/3 of two examples: sqrt(2 * 2/9) / 3
        nothing = (
            "api_client_type", "name", "requests", "error", "rescored_from", "digests", "suite", "flow_run_id",
        )  # fmt: skip
        assert metadata == dict.fromkeys(nothing) | {
            "format": 2, "status": "incomplete", "env_id": "sums", "env_args": {"difficulty": "easy"},
            "extra_env_kwargs": {}, "reward_weights": {}, "env_version": "1.2.0", "model": "openai/gpt-4.1-mini",
            "base_url": "https://api.example.com/v1", "sampling_args": {"temperature": 0.7, "max_tokens": 512},
            "num_examples": 2, "rollouts_per_example": 2,
            "date": "2026-01-01", "time": "00:00:00", "time_ms": 12500.0,
            "started_at": "2026-01-01T00:00:00.500+00:00", "finished_at": "2026-01-01T00:00:03.250+00:00",
            "pass_threshold": 0.5, "rollouts": 4, "scored": 3, "failed": 1, "coverage": 0.75,
            "outcomes": {"scored": 3, "failed": 1},
            "avg_reward": pytest.approx(1 / 3), "avg_metrics": {"correct": pytest.approx(1 / 3), "num_turns": 1.0},
            "avg_error": 0.25, "pass_at_k": {"1": 0.5, "2": 1.0}, "pass_all_k": {"1": 0.5, "2": 0.0},
            "complete_examples": 1, "usage": {"input_tokens": 44, "output_tokens": 28},
            "errors": {"ModelError -> RateLimitError": 1},
            "error_examples": {"ModelError -> RateLimitError": "overloaded"},
            "stop_conditions": {"max_turns_reached": 3}, "truncated": 0, "served_models": [],
            "version_info": SUMS["version_info"], "state_columns": [], "tags": [],
            "original": {"program": "verifiers"} | {
                name: SUMS[name] for name in (
                    "num_examples", "avg_reward", "avg_metrics", "avg_error", "pass_at_k", "pass_threshold", "usage",
                )
            },
        }  # fmt: skip

    def test_rollouts_are_counted_per_example_and_numbers_that_json_lacks_are_dropped(self, reads):
        rows = reads(sum_row(1, 0.0), sum_row(0, 1.0), sum_row(1, 1.0), sum_row(0, 0.5))
        found = [(row["example_id"], row["rollout_index"], row["reward"], row["advantage"]) for row in rows]
        assert found == [(0, 0, 1.0, 0.25), (0, 1, 0.5, -0.25), (1, 0, 0.0, -0.5), (1, 1, 1.0, 0.5)]
        metrics = {"correct": float("nan"), "long": float("inf"), "huge": 10**400, "yes": True, "text": "no"}
        [row] = reads(sum_row(reward=float("nan"), metrics=metrics, correct=float("nan")))
        assert (row["reward"], row["advantage"], row["metrics"]) == (None, None, {"yes": 1.0})

    def test_a_row_with_an_error_has_no_reward(self, reads):
        errors = [
            (MODEL_ERROR, ("ModelError", "overloaded", "ModelError -> RateLimitError")),
            ("ModelError -> Rare", ("ModelError", "ModelError -> Rare", "ModelError -> Rare")),
            ('SandboxError("it\'s gone")', ("SandboxError", "it's gone", "SandboxError")),
            ("ToolError: no such tool", ("ToolError", "ToolError: no such tool", "ToolError")),
            ("something broke", ("Error", "something broke", "Error")),
        ]
        rows = reads(*(sum_row(n, 0.0, error=error) for n, (error, _) in enumerate(errors)))
        assert [(row["reward"], row["advantage"], row["metrics"]) for row in rows] == [(None, None, {})] * len(errors)
        found = [row["error"] for row in rows]
        assert [(one["error"], one["message"], one["error_chain_repr"]) for one in found] == [it for _, it in errors]
        assert {(one["phase"], one["traceback"]) for one in found} == {("generation", None)}

    def test_unknown_fields_are_state_columns_and_metrics_may_be_called_as_fields_are(
        self, imported, verifiers_run, reads, caplog
    ):
        row = sum_row(board="x..o", correct=1.0, num_turns=["overwritten", "by", "a", "column"])
        metadata, [row] = imported(verifiers_run(row, state_columns=["board", "num_turns"]))
        assert metadata["state_columns"] == ["num_turns", "board"]
        assert (row["board"], row["num_turns"]) == ("x..o", ["overwritten", "by", "a", "column"])
        assert row["metrics"] == {"correct": 1.0, "num_turns": 1.0}
        assert "correct" not in row
        metrics = {"reward": 0.25, "style": 1.0}
        [row] = reads(sum_row(reward=0.25, metrics=metrics, style=1.0))
        assert (row["reward"], row["metrics"]) == (0.25, metrics)
        assert "1 rows" in caplog.text
        [row] = reads(sum_row(metrics={"answer": 0.5, "error": 0.0}, answer=0.5, error=0.0))
        assert row["error"] is None
        assert "answer" not in row
        assert row["metrics"] == {"answer": 0.5, "error": 0.0}

    def test_the_oldest_rows_have_no_ids_and_flat_metrics(self, imported, verifiers_run):
        timing = {"generation_ms": 120.0, "scoring_ms": 3.0, "total_ms": 123.0}

        def row(question, reward):
            asked, answered = {"role": "user", "content": question}, {"role": "assistant", "content": "4"}
            said = {"prompt": [asked], "completion": [answered], "answer": "4", "task": "default"}
            return said | timing | {"reward": reward, "accuracy": reward}

        path = verifiers_run(row("2+2?", 1.0), row("1+3?", 0.0), row("2+2?", 1.0), row("1+3?", 1.0))
        metadata = {"env_id": "sums", "model": "m", "date": "2026-03-03", "time": "14:23:45", "time_ms": 12345}
        (path / "metadata.json").write_text(json.dumps(metadata | {"avg_metrics": {"accuracy": 0.75}}))
        metadata, rows = imported(path)
        keys = [(row["example_id"], row["rollout_index"], row["prompt"][0]["content"]) for row in rows]
        assert keys == [(0, 0, "2+2?"), (0, 1, "2+2?"), (1, 0, "1+3?"), (1, 1, "1+3?")]
        assert rows[0]["metrics"] == {"accuracy": 1.0}
        assert rows[0]["timing"] == timing
        assert (rows[0]["token_usage"], rows[0]["is_completed"], rows[0]["task"]) == (None, None, "default")
        assert metadata["state_columns"] == []
        assert (metadata["started_at"], metadata["time_ms"]) == ("2026-03-03T14:23:45.000+00:00", 12345)
        assert (metadata["rollouts"], metadata["rollouts_per_example"], metadata["sampling_args"]) == (4, 2, {})

    def test_tool_calls_saved_as_texts_are_read(self, reads):
        call = {"id": "call-1", "name": "add", "arguments": '{"a": 2}'}
        asking = {"role": "assistant", "content": "", "tool_calls": [json.dumps(call)]}
        nested = {"id": "call-2", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        answering = {"role": "tool", "tool_call_id": "call-1", "content": "4"}
        old = {"role": "assistant", "content": None, "tool_calls": [nested]}
        [row] = reads(sum_row(completion=[asking, answering, old]))
        assert row["completion"][0]["tool_calls"] == [call]
        assert row["completion"][1] == answering
        assert row["completion"][2]["tool_calls"] == [{"id": "call-2", "name": "add", "arguments": "{}"}]

    @pytest.mark.parametrize("case", ["columns", "tools", "message_forms", "prompt_forms-plain", "math_answers"])
    def test_examples_have_the_hash_that_nightjar_gives_them(self, reads, case):
        recorded = json.loads((RECORDED / f"{case}.json").read_text())
        names = ("example_id", "prompt", "completion", "answer", "info", "reward", "metrics")
        saved = ({name: row[name] for name in names if row[name]} for row in recorded["rows"].values())
        found = {row["example_id"]: row["example_hash"] for row in reads(*({"reward": 0.0, **row} for row in saved))}
        questions = [{k: v for k, v in row.items() if k != "example_id"} for row in recorded["examples"]]
        expected = [example_hash(Examples(questions)[n]) for n in range(len(questions))]
        assert [found.get(row["example_id"], 0) for row in recorded["examples"]] == expected

    def test_an_average_that_differs_from_the_rows_gives_a_warning(self, imported, verifiers_run, caplog):
        imported(verifiers_run(sum_row(), sum_row(error="Error", reward=0.0), avg_reward=0.5))
        assert caplog.text == ""  # it counts the failed rollout as 0, Nightjar does not: no other difference
        imported(verifiers_run(sum_row(), avg_reward=0.5))
        assert "is 0.5, but the average of the rows is 1.0" in caplog.text

    def test_the_same_results_give_the_same_bytes_in_any_folder(self, verifiers_run, tmp_path, importers):
        path = verifiers_run(sum_row(), sum_row(1, 0.0))
        elsewhere = shutil.copytree(path, tmp_path / "archive" / "baseline")
        one, other = (
            importers.convert(importers.FoundResults("verifiers", p), tmp_path / p.name) for p in (path, elsewhere)
        )
        assert one.name == other.name
        for name in ("results.jsonl", "metadata.json"):
            assert (one / name).read_bytes() == (other / name).read_bytes()
        assert importers.convert(importers.FoundResults("verifiers", path), tmp_path / path.name) == one

    def test_a_resumed_run_keeps_its_id_and_other_runs_have_others(self, imported, verifiers_run, nemo_run):
        run_id = imported(verifiers_run(sum_row()))[0]["run_id"]
        assert imported(verifiers_run(sum_row(), sum_row(1), num_examples=3))[0]["run_id"] == run_id
        later = sum_row(timing={"start_time": START + 0.001})
        others = [
            verifiers_run(later, folder="later"), verifiers_run(sum_row(), folder="other-model", model="m"),
            verifiers_run(sum_row(), folder="other-environment", env_id="e"),
            *(verifiers_run(sum_row(reward=reward, timing=None), folder=f"without-{reward}") for reward in (0.0, 1.0)),
        ]  # fmt: skip
        assert len({run_id, *(imported(path)[0]["run_id"] for path in others)}) == 6
        paths = [nemo_run(trivia_row(), folder=name, config_hash=name) for name in ("a", "b")]
        assert len({imported(path)[0]["run_id"] for path in paths}) == 2


def trivia_row(problem_idx=0, repeat=0, reward=1.0, **changed):
    """Returns a row of NeMo Evaluator."""
    row = {
        "problem_idx": problem_idx, "repeat": repeat, "reward": reward,
        "scorer_rewards": {"scorer:exact_match": reward}, "prompt": f"Name city {problem_idx}.",
        "model_response": "Lima", "extracted_answer": "lima", "expected_answer": "Lima",
        "scoring_details": {"method": "exact", "correct": bool(reward), "distance": 2, "needs_judge": False},
        "metadata": {"category": "capitals"}, "tokens": 18, "latency_ms": 210.5,
    }  # fmt: skip
    return row | changed


def broken(category, problem_idx=0, **details):
    """Returns a row of a rollout that failed; NeMo Evaluator gives it reward 0."""
    details = {"error": "it broke", "error_category": category, "method": "solve_failed", **details}
    return trivia_row(problem_idx, 0, 0.0, model_response="", scoring_details=details, scorer_rewards={}, latency_ms=0)


def bundle(**changed):
    """Returns a bundle of NeMo Evaluator."""
    content = {
        "run_id": "eval-20260101T000100Z-trivia", "config_hash": "sha256:00ff", "sdk_version": "0.3.0",
        "timestamp": "2026-01-01T00:01:00.250000+00:00",
        "config": {
            "benchmark": "trivia", "model": "meta/llama-3.1-8b",
            "base_url": "https://host.example.com/v1/chat/completions?api_key=k",
            "api_key": "nvapi-not-for-others", "temperature": 0.2, "max_tokens": 64, "repeats": 2, "max_problems": 2,
            "system_prompt": "Be brief.", "scorers": ["exact_match"],
            "judge": {"model": "big", "authorization": "Bearer abc"}, "shuffle_seed": 42,
            "shuffle": {"seed": 42, "applied": True, "ds_full_size": 100, "ds_effective_size": 2},
            "_sandbox_config": "None",
        },
        "benchmark": {
            "name": "trivia", "samples": 2, "repeats": 2,
            "scores": {"mean_reward": {"value": 0.5, "ci_lower": 0.1, "ci_upper": 0.9},
                       "runtime": {"elapsed_seconds": 30.0}},
        },
        "n_results": 4,
    }  # fmt: skip
    return content | changed


@pytest.fixture
def nemo_run(tmp_path):
    """Writes a folder of NeMo Evaluator."""

    def write(*rows, folder="trivia", steps=(), **changed):
        path = tmp_path / "eval_results" / folder
        path.mkdir(parents=True, exist_ok=True)
        content = bundle(**changed)
        (path / f"{content['run_id']}.json").write_text(json.dumps(content))
        write_lines(path / "results.jsonl", rows)
        if steps:
            write_lines(path / "trajectories.jsonl", steps)
        return path

    return write


class TestNemo:
    def test_a_row_of_nemo_becomes_a_row_of_nightjar(self, imported, nemo_run):
        metadata, [row] = imported(nemo_run(trivia_row(7, 1)))
        question = {"question": "Name city 7.", "answer": "Lima", "info": {"category": "capitals"}}
        assert row == ROW | {
            "example_id": 7, "rollout_index": 1, "example_hash": example_hash(Examples([question])[0]),
            "prompt": [{"role": "user", "content": "Name city 7."}],
            "completion": [{"role": "assistant", "content": "Lima"}],
            "answer": "Lima", "info": {"category": "capitals"}, "reward": 1.0,
            "metrics": {"scorer:exact_match": 1.0, "correct": 1.0, "distance": 2.0},
            "timing": {"generation_ms": 210.5, "scoring_ms": None, "total_ms": None},
            "stop_condition": None, "token_usage": None,
            "extracted_answer": "lima", "tokens": 18, "scoring_details": {"method": "exact"},
        }  # fmt: skip
        assert metadata["state_columns"] == ["extracted_answer", "tokens", "scoring_details"]

    def test_the_bundle_becomes_metadata(self, imported, nemo_run):
        rows = trivia_row(1, 1, 0.0), trivia_row(0, 0), trivia_row(1, 0), trivia_row(0, 1, 0.0)
        metadata, rows = imported(nemo_run(*rows))
        assert [(row["example_id"], row["rollout_index"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        expected = {
            "status": "completed", "env_id": "trivia",
            "env_args": {
                "system_prompt": "Be brief.", "scorers": ["exact_match"], "judge": {"model": "big"}, "shuffle_seed": 42,
            },
            "model": "meta/llama-3.1-8b", "base_url": "https://host.example.com/v1",
            "sampling_args": {"temperature": 0.2, "max_tokens": 64}, "num_examples": 2, "rollouts_per_example": 2,
            "time_ms": 30000.0, "started_at": "2026-01-01T00:00:30.250+00:00",
            "finished_at": "2026-01-01T00:01:00.250+00:00", "rollouts": 4, "scored": 4, "avg_reward": 0.5,
            "pass_at_k": {"1": 0.5, "2": 1.0}, "pass_all_k": {"1": 0.5, "2": 0.0},
            "version_info": {"sdk_version": "0.3.0"},
        }  # fmt: skip
        assert {name: metadata[name] for name in expected} == expected
        assert metadata["run_id"].startswith("eval-20260101T000100Z-trivia-")
        assert metadata["original"]["bundles"][0]["benchmark"]["scores"]["mean_reward"]["value"] == 0.5
        assert "not-for-others" not in json.dumps(metadata)

    def test_a_failed_rollout_has_no_reward_and_one_that_reached_a_limit_keeps_its_0(self, imported, nemo_run):
        chains = {
            "infra_error": "InfraError", "system": "Error", "rate_limit": "ModelError -> RateLimitError",
            "server_error": "ModelError -> InternalServerError", "a_new_one": "Error", None: "Error",
        }  # fmt: skip
        failed = [broken(category, n) for n, category in enumerate(chains)]
        metadata, rows = imported(nemo_run(trivia_row(1), *failed, trivia_row(6)))  # of problem 1 the last row counts
        assert [(row["reward"], row["metrics"], row["completion"]) for row in rows[:6]] == [(None, {}, None)] * 6
        found = [(row["error"]["message"], row["error"]["error_chain_repr"]) for row in rows[:6]]
        assert found == [("it broke", chain) for chain in chains.values()]
        assert (metadata["avg_reward"], metadata["scored"], metadata["failed"]) == (1.0, 1, 6)
        unscored = {"unscored": True, "unscored_reason": "no JSON"}
        details = [unscored, {"needs_judge": False, "judge": {"error": "no JSON", "total": None}}]
        _, rows = imported(nemo_run(*(trivia_row(n, 0, 0.0, scoring_details=one) for n, one in enumerate(details))))
        for row in rows:
            assert (row["reward"], row["error"]["error"], row["error"]["phase"]) == (None, "ScoringError", "scoring")
            assert row["error"]["message"] == "no JSON"
            assert row["completion"] == [{"role": "assistant", "content": "Lima"}]
        limits = ["graceful", "solve_timeout", "turn_budget_exhausted", "context_window_exceeded"]
        _, rows = imported(nemo_run(*map(broken, limits, range(4))))
        found = [(row["reward"], row["error"], row["stop_condition"], row["is_truncated"]) for row in rows]
        assert found == [(0.0, None, limit, limit != "graceful") for limit in limits]

    def test_trajectories_add_tokens_times_and_the_served_model(self, imported, nemo_run):
        def step(problem_idx):
            model = {"model": "llama-served", "finish_reason": "length", "tokens": {"prompt": 11, "completion": 7}}
            timing = {"seed_ms": 0.1, "model_ms": 210.5, "verify_ms": 4.5, "total_ms": 216.0}
            return {"problem_idx": problem_idx, "repeat": 0, "model": model, "timing": timing}

        rows = [trivia_row(1), trivia_row(0), trivia_row(2)]
        _, rows = imported(nemo_run(*rows, steps=[step(1), step(0), step(9)]))
        assert rows[0]["token_usage"] == {"input_tokens": 11, "output_tokens": 7}
        assert rows[0]["timing"] == {"generation_ms": 210.5, "scoring_ms": 4.5, "total_ms": 216.0}
        assert (rows[1]["model"], rows[1]["is_truncated"]) == ("llama-served", True)
        assert (rows[2]["model"], rows[2]["token_usage"]) == (None, None)  # that step is of another problem

    def test_a_run_without_rows_and_old_rows_without_a_prompt_are_imported(self, imported, nemo_run):
        metadata, rows = imported(nemo_run(folder="empty"))
        assert (rows, metadata["avg_reward"], metadata["scored"]) == ([], None, 0)
        rows = [{name: value for name, value in trivia_row(n).items() if name != "prompt"} for n in (0, 1)]
        _, found = imported(nemo_run(*rows))
        assert [row["prompt"] for row in found] == [None, None]
        assert found[0]["example_hash"] != found[1]["example_hash"]


def write_shards(nemo_run, numbers=(0, 1), name="sharded"):
    """Writes shards of one problem each; there are two in all."""
    for n in numbers:
        shard = {"shard": {"idx": n, "total": 2, "range": [n, n + 1]}, "shard_range": [n, n + 1], "repeats": 1}
        shuffled = {"model": "m", "shuffle": {"ds_effective_size": 2}}
        path = nemo_run(trivia_row(n), folder=f"{name}/shard_{n}/trivia", config=shard | shuffled, run_id=f"eval-{n}")
    return path.parents[1]


class TestFinding:
    def test_shards_are_one_run_also_when_they_are_merged_or_one_is_missing(
        self, imported, nemo_run, caplog, importers
    ):
        root = write_shards(nemo_run)
        shards = tuple(root / f"shard_{n}" / "trivia" for n in (0, 1))
        assert list(importers.find_results(root)) == [importers.FoundResults("nemo", root / "trivia", shards)]
        metadata, rows = imported(root)
        assert [row["example_id"] for row in rows] == [0, 1]
        assert (metadata["status"], metadata["num_examples"]) == ("incomplete", 2)  # "repeats" says 2, rows have 1
        assert [part["run_id"] for part in metadata["original"]["bundles"]] == ["eval-0", "eval-1"]
        assert caplog.text == ""  # the average of a shard is not expected to be that of all
        run_id = metadata["run_id"]
        config = {"model": "m", "n_shards": 2, "shard_range": [0, 1], "shuffle": {"ds_effective_size": 2}}
        nemo_run(trivia_row(0), trivia_row(1), folder="sharded/trivia", run_id="eval-merged", config=config)
        metadata, rows = imported(root)
        assert (metadata["run_id"], len(rows), metadata["num_examples"]) == (run_id, 2, 2)
        metadata, _ = imported(write_shards(nemo_run, [1], "partly"))
        assert (metadata["num_examples"], metadata["scored"], metadata["dataset_fingerprint"]) == (2, 1, None)

    def test_several_bundles_with_one_file_of_rows_are_an_error(self, nemo_run, tmp_path, importers):
        nemo_run(trivia_row(), run_id="eval-1")
        path = nemo_run(trivia_row(), run_id="eval-2")
        for place in (path, path / "eval-2.json"):
            [found] = importers.find_results(place)
            with pytest.raises(WarehouseError, match=r"2 bundles .* eval-1\.json, eval-2\.json"):
                importers.convert(found, tmp_path)

    def test_results_are_found_in_a_tree_by_their_folder_or_a_file(
        self, tmp_path, verifiers_run, nemo_run, run_writer, importers
    ):
        nightjar = run_writer.write(tmp_path / "outputs/evals/chess--m/0a1b2c3d4e5f")
        (nightjar / "config.json").write_text("{}")
        verifiers, nemo = verifiers_run(sum_row()), nemo_run(trivia_row())
        ours, theirs = importers.FoundResults("nightjar", nightjar), importers.FoundResults("verifiers", verifiers)
        assert list(importers.find_results(tmp_path)) == [importers.FoundResults("nemo", nemo), ours, theirs]
        assert importers.convert(ours, tmp_path / "scratch") == nightjar
        [path] = nemo.glob("eval-*.json")
        for place in (verifiers, verifiers / "results.jsonl"):
            assert list(importers.find_results(place)) == [theirs]
        assert list(importers.find_results(path)) == [importers.FoundResults("nemo", path)]
        [found] = importers.find_results(path.rename(nemo / "bundle.json"))
        assert importers.convert(found, nemo / "scratch").is_dir()

    def test_hidden_folders_and_segments_are_skipped(self, tmp_path, verifiers_run, importers):
        verifiers_run(sum_row(), folder=".trash/run")
        path = verifiers_run(sum_row(), folder="warehouse/segments/1/run")
        (path.parent / "segment.json").write_text("{}")
        with pytest.raises(WarehouseError, match="No results in"):
            list(importers.find_results(tmp_path))
        (path.parent / "segment.json").unlink()
        assert list(importers.find_results(tmp_path)) == [importers.FoundResults("verifiers", path)]

    def test_links_are_followed_once_and_a_path_without_results_is_an_error(self, tmp_path, verifiers_run, importers):
        (tmp_path / "notes.txt").write_text("nothing")
        for path in (tmp_path / "missing", tmp_path, tmp_path / "notes.txt"):
            with pytest.raises(WarehouseError, match=r"No results in|there is no such file or folder"):
                list(importers.find_results(path))
        path = verifiers_run(sum_row())
        (path / "again").symlink_to(tmp_path / "outputs", target_is_directory=True)
        (tmp_path / "linked").mkdir()
        (tmp_path / "linked" / "outputs").symlink_to(tmp_path / "outputs", target_is_directory=True)
        (tmp_path / "linked" / "nowhere").symlink_to(tmp_path / "missing")
        [found] = importers.find_results(tmp_path / "linked")
        assert found.path.samefile(path)

    def test_a_torn_last_line_is_left_out(self, imported, verifiers_run, caplog):
        path = verifiers_run(sum_row(), sum_row(1), avg_reward=1.0)
        content = (path / "results.jsonl").read_bytes()
        (path / "results.jsonl").write_bytes(content.rstrip())
        assert len(imported(path)[1]) == 2, "only the line break is missing"
        (path / "results.jsonl").write_bytes(content[:-20])
        metadata, rows = imported(path)
        assert [row["example_id"] for row in rows] == [0]
        assert (metadata["status"], metadata["coverage"]) == ("incomplete", 0.25)
        assert "results.jsonl, line 2" in caplog.text


DAMAGED = {
    "verifiers": [
        '{"example_id": 0, "rew', "null", "[1]", "\xff", '{"neither": "this nor that"}',
        '{"example_id": -1, "reward": 1.0}', '{"example_id": "one", "reward": 1.0}',
        '{"example_id": 1, "reward": "high"}', f'{{"example_id": {1 << 63}, "reward": 1.0}}',
    ],
    "nemo": [
        '{"problem_idx": 0, "rep', "null", '{"reward": 1.0}', '{"problem_idx": -1, "repeat": 0}',
        f'{{"problem_idx": {1 << 63}, "repeat": 0}}', '{"problem_idx": 0, "repeat": "first"}',
        '{"problem_idx": 0, "repeat": -1}', '{"problem_idx": 0, "reward": "high"}',
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_rows_are_named_and_the_others_are_imported(verifiers_run, nemo_run, tmp_path, kind, importers):
    rows = [sum_row(n) if kind == "verifiers" else trivia_row(n) for n in range(2)]
    folder = verifiers_run(*rows) if kind == "verifiers" else nemo_run(*rows)
    path = folder / "results.jsonl"
    first, last = path.read_text().splitlines()
    path.write_text("\n".join([first, *DAMAGED[kind], last, ""]))
    warehouse = Warehouse(tmp_path / "warehouse")
    [found] = importers.import_all(warehouse, [folder])
    assert (found.rollouts, found.error, found.novelty) == (2, None, "new")
    named = [reason.partition(" is ")[0] for reason in found.unreadable]
    assert named == [f"{path}, line {number}" for number in range(2, 2 + len(DAMAGED[kind]))]
    ids = warehouse.query("SELECT example_id, rollout_index, reward FROM rollouts ORDER BY ALL").rows
    assert ids == [(0, 0, 1.0), (1, 0, 1.0)]


def test_damaged_rows_give_an_exit_code_and_comparisons_go_on_without_them(nightjar, nemo_run, tmp_path, caplog):
    whole, damaged = (
        nemo_run(*map(trivia_row, range(3)), folder=name, run_id=f"eval-{name}") for name in ("whole", "damaged")
    )
    lines = (damaged / "results.jsonl").read_text().splitlines()
    (damaged / "results.jsonl").write_text("\n".join([lines[0], "null", lines[2][:40]]))
    named = [f"{damaged / 'results.jsonl'}, line {number} is damaged" for number in (2, 3)]
    options = ("--warehouse", tmp_path / "warehouse")
    ended = nightjar("warehouse", "import", damaged, *options)
    assert (ended.code, [name in ended.err for name in named]) == (1, [True, True])
    ended = nightjar("compare", whole, damaged, *options, "--json")
    assert (ended.code, [name in caplog.text for name in named]) == (0, [True, True])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_an_unreadable_subfolder_is_named_and_the_others_are_imported(nemo_run, tmp_path, importers):
    nemo_run(trivia_row())
    closed = nemo_run(trivia_row(), folder="closed")
    closed.chmod(0)
    try:
        found = list(importers.import_all(Warehouse(tmp_path / "warehouse"), [tmp_path / "eval_results"]))
    finally:
        closed.chmod(0o755)
    assert [(one.path.name, one.novelty) for one in found] == [("closed", None), ("trivia", "new")]
    assert "Permission denied" in found[0].error


def test_each_run_is_imported_once_and_a_bundle_with_fewer_rows_does_not_replace_it(
    nightjar, nemo_run, tmp_path, importers
):
    folder = nemo_run(*map(trivia_row, range(3)))
    part = Path(shutil.copytree(folder, tmp_path / "part"))
    path = part / "results.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    warehouse = Warehouse(tmp_path / "warehouse")
    found = [one for place in (part, folder, part, folder) for one in importers.import_all(warehouse, [place])]
    assert [one.novelty for one in found] == ["new", "updated", "older than what is there", "already there"]
    assert warehouse.query("SELECT scored FROM runs").rows == [(3,)]
    command = ("warehouse", "import", folder, shutil.copytree(folder, tmp_path / "copy"))
    for name, said in (("new", "Imported 1 run into {}. "), ("new", "Imported 0 runs into {} (1 already there). ")):
        place = tmp_path / name
        assert said.format(place) in nightjar(*command, "--warehouse", place).err


def test_steps_follow_their_rows_past_a_damaged_line(imported, nemo_run, caplog):
    steps = [
        {"problem_idx": n, "repeat": 0, "model": {"tokens": {"prompt": 10 + n, "completion": 1}}} for n in range(4)
    ]
    folder = nemo_run(*map(trivia_row, range(4)), steps=steps)
    for name, number in (("results.jsonl", 1), ("trajectories.jsonl", 2)):
        lines = (folder / name).read_text().splitlines()
        lines[number] = "{"
        (folder / name).write_text("\n".join(lines))
    _, rows = imported(folder)
    assert [(row["example_id"], (row["token_usage"] or {}).get("input_tokens")) for row in rows] == [
        (0, 10), (2, None), (3, 13),
    ]  # fmt: skip
    assert all(f"{name}, line {line} is damaged" in caplog.text
               for name, line in (("results.jsonl", 2), ("trajectories.jsonl", 3)))  # fmt: skip


def test_results_without_a_readable_row_or_settings_are_refused(verifiers_run, nemo_run, tmp_path, importers):
    no_row = r"has no readable row; .*results\.jsonl, line 1 is damaged"
    for folder, file, content, match in (
        (verifiers_run(sum_row()), "results.jsonl", "null\n[1]\n", no_row),
        (verifiers_run(sum_row(), folder="torn"), "metadata.json", '{"env_id": ', r"metadata\.json is damaged"),
        (nemo_run(trivia_row()), "results.jsonl", "null\n", no_row),
        (nemo_run(trivia_row(), folder="bare"), "results.jsonl", None, r"Cannot read .*results\.jsonl"),
    ):
        path, scratch = folder / file, tmp_path / "scratch"
        path.unlink() if content is None else path.write_text(content)
        [found] = importers.find_results(folder)
        with pytest.raises(WarehouseError, match=match):
            importers.convert(found, scratch)
        assert list(scratch.iterdir()) == []
