"""Saving, paths, metrics, evaluations, errors and configurations under the names of verifiers."""

import json
import logging
import os
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from pydantic import BaseModel

from nightjar.clients import ClientConfig
from nightjar.compat.verifiers import config, evaluations, metrics, printing, results
from nightjar.compat.verifiers.config import EvalConfig, EvalRunConfig
from nightjar.compat.verifiers.error_chains import ErrorChain, error_info, get_error_chain, get_vf_error_chain
from nightjar.compat.verifiers.results import GenerateOutputsBuilder
from nightjar.core.rollout.records import is_json_serializable
from nightjar.errors import ConfigError, InfraError, SandboxError, ToolCallError
from nightjar.model_server import ArithmeticSolver, ModelServer


def row(example_id=0, reward=1.0, **fields):
    return {"example_id": example_id, "reward": reward, "metrics": {"right": reward}, "error": None, **fields}


FAILED = row(reward=None, metrics={}, error={"error": "ModelError", "error_chain_repr": "ModelError"})
METADATA = {"env_id": "sums", "model": "a/b", "num_examples": 2, "rollouts_per_example": 2, "avg_reward": 0.5}


def test_means_of_metrics_are_over_rows_that_have_a_number_and_pass_at_k_over_whole_examples():
    rows = [row(), row(reward=0.0), FAILED, row(token_usage={"input_tokens": 4, "final_output_tokens": 2})]
    found = {}
    for kind in (metrics.RewardMetric, metrics.ErrorRateMetric, metrics.InputTokensMetric,
                 metrics.OutputTokensMetric, metrics.FinalOutputTokensMetric):  # fmt: skip
        metric = kind()
        metric.add_outputs(rows)
        found[kind.__name__] = (metric.compute(), metric.count)
        assert isinstance(metric, metrics.Metric)
    assert found == {
        "RewardMetric": (pytest.approx(2 / 3), 3), "ErrorRateMetric": (0.25, 4), "InputTokensMetric": (4, 1),
        "OutputTokensMetric": (0.0, 0), "FinalOutputTokensMetric": (2, 1),
    }  # fmt: skip
    metric = metrics.EnvMetrics()
    metric.add_outputs([row(metrics={"a": 1.0}), row(metrics={"a": 0.0, "b": 3.0}), FAILED])
    assert metric.compute() == {"a": 0.5, "b": 3.0}
    metric.reset()
    assert metric.compute() == {}
    metric = metrics.PassAtKMetric(4, threshold=0.5)
    metric.add_outputs([row(0, reward) for reward in (1, 0, 0, 0.5)] + [row(1, 1.0)] * 3)
    at_k, all_k = metric.compute()
    assert at_k == pytest.approx({"1": 0.5, "2": 1 - 1 / 6, "4": 1.0})
    assert all_k == pytest.approx({"1": 0.5, "2": 1 / 6, "4": 0.0})
    assert metrics.PassAtKMetric(1).compute() == ({}, {})


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes results into a folder, in a working directory of the test's own."""
    monkeypatch.chdir(tmp_path)

    def write(path, rows=1, **metadata):
        path.mkdir(parents=True)
        (path / "metadata.json").write_text(json.dumps(METADATA | metadata))
        (path / "results.jsonl").write_text("{}\n" * rows)
        return path

    return write


def test_paths_are_below_outputs_the_environment_or_a_folder_of_choice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert results.get_results_path("sums", "a/b").parent == Path("outputs/evals/sums--a--b")
    assert len(results.get_results_path("sums", "a/b").name) == 8
    config = EvalConfig(env_id="my-sums", model="m")
    assert results.get_eval_results_path(config).parent == Path("outputs/evals/my-sums--m")
    Path("environments/my_sums").mkdir(parents=True)
    assert results.get_eval_results_path(config).parent == Path("environments/my_sums/outputs/evals/my-sums--m")
    assert results.get_eval_runs_dir("my-sums", "m", output_dir="there") == Path("there/evals/my-sums--m")
    assert results.get_gepa_results_path("sums", "m", output_dir="x").parent == Path("x/gepa/sums--m")
    path = Path(results.write_temp_file("text", ".toml"))
    assert (path.read_text(), path.suffix) == ("text", ".toml")
    path.unlink()


def test_the_newest_incomplete_results_of_rows_and_metadata_are_found(write):
    def found(num_examples=2, rollouts=2):
        return results.find_latest_incomplete_eval_results_path("sums", "a/b", num_examples, rollouts)

    assert found() is None
    folder = Path("outputs/evals/sums--a--b")
    for age, (name, rows) in enumerate([("whole", 4), ("new", 3), ("old", 2)]):
        os.utime(write(folder / name, rows), (1000 - age, 1000 - age))
    write(folder / "other", 1, rollouts_per_example=3)
    assert found() == folder / "new"
    assert found(num_examples=1) is None
    assert found(num_examples=-1) == folder / "whole"
    assert found(rollouts=4) is None
    assert results.is_valid_eval_results_path(folder / "whole")
    (folder / "whole/metadata.json").unlink()
    assert not results.is_valid_eval_results_path(folder / "whole")
    assert not results.is_valid_eval_results_path(folder / "nothing")


class Point(BaseModel):
    x: int = 1
    y: int | None = None


def test_any_value_is_made_json_and_metadata_are_saved_and_compared_on_a_resume(tmp_path):
    value = {"model": Point(), "path": Path("a/b"), "day": date(2026, 1, 2), "set": {1}, 3: object}
    saved = results.make_serializable(value)
    assert saved == {"model": {"x": 1}, "path": "a/b", "day": "2026-01-02", "set": [1], "3": repr(object)}
    assert is_json_serializable(saved)
    assert not is_json_serializable(value)
    results.save_metadata({**METADATA, "path_to_save": tmp_path, "date": "now"}, tmp_path)
    assert json.loads((tmp_path / "metadata.json").read_text()) == METADATA
    results.validate_resume_metadata(tmp_path, "sums", "a/b", 3, 2)
    with pytest.raises(ValueError, match=r"model: saved=.a/b., current=.c.; num_examples: saved=2, c"):
        results.validate_resume_metadata(tmp_path, "sums", "c", 1, 2)


def test_rows_are_loaded_and_appended_after_a_damaged_last_line_which_is_warned_of(tmp_path, caplog):
    def ids():
        return [each["example_id"] for each in results.load_outputs(tmp_path)]

    results.save_outputs([row(0), row(1)], tmp_path)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"torn')
    assert ids() == [0, 1]
    results.save_new_outputs([row(2)], tmp_path)
    assert ids() == [0, 1, 2]
    results.save_outputs([row(3)], tmp_path)
    assert ids() == [3]
    (tmp_path / "results.jsonl").write_text('{"example_id": 0}\n{"example_id": 1, "reward"\n\n')
    caplog.clear()
    assert ids() == [0]
    assert "line 2" in caplog.text
    (tmp_path / "results.jsonl").write_text('nonsense\n{"example_id": 4}\n')
    with pytest.raises(json.JSONDecodeError, match="line 1"):
        results.load_outputs(tmp_path)


def test_a_failed_upload_is_logged(caplog, monkeypatch):
    outputs = {"outputs": [], "metadata": METADATA}
    assert results.get_hf_hub_dataset_name(outputs) == "sums_a_b_n2_r2"
    with caplog.at_level(logging.ERROR):
        results.push_results_to_hf_hub(outputs, "no name at all/x/y")
    assert "no name at all/x/y" in caplog.text


def test_metadata_are_built_from_rows():
    client = ClientConfig(endpoint_configs=[{"api_base_url": f"http://localhost:{port}/v1"} for port in (1, 2)])
    builder = GenerateOutputsBuilder("sums", {}, "m", client, 2, 2, None, {"temperature": 1}, None)
    builder.add_outputs([row(1, 0.0), row(0, 1.0), row(0, 0.0), FAILED])
    built = builder.build(sort_by_example_id=True)
    assert [each["example_id"] for each in built["outputs"]] == [0, 0, 0, 1]
    told = built["metadata"]
    assert told["base_url"] == "http://localhost:1/v1,http://localhost:2/v1"
    assert (told["avg_reward"], told["avg_error"], told["avg_metrics"]) == (pytest.approx(1 / 3), 0.25, {
        "right": pytest.approx(1 / 3)
    })  # fmt: skip
    assert told["pass_at_k"] == {"1": 0.5, "2": 1.0}
    assert (told["usage"], told["tools"]) == (None, None)


def test_small_functions_of_verifiers(monkeypatch):
    inputs = [{"example_id": number} for number in (0, 1, 0, 1)]
    assert evaluations.filter_inputs(inputs, [row(0), row(1), row(1)], 2) == [{"example_id": 0}]
    assert evaluations.filter_inputs(inputs, [], 2) == inputs
    assert printing.to_col_order([{"a": 1, "b": 2}, {"a": 3, "b": 4}]) == {"a": [1, 3], "b": [2, 4]}
    assert config.normalize_env_id_alias({"id": "x", "n": 1}, "[[eval]]") == {"env_id": "x", "n": 1}
    with pytest.raises(ValueError, match="has both"):
        config.normalize_env_id_alias({"id": "x", "env_id": "y"}, "[[eval]]")
    assert config.invalid_ablation_sweep_fields({"args": {}, "a": [], "b": []}, {"a"}) == {"b"}
    monkeypatch.delenv("VF_LOG_LEVEL", raising=False)
    assert (evaluations.get_log_level(True), evaluations.get_log_level(False)) == ("DEBUG", "INFO")
    assert printing.output_env_id({"info": {"env_id": "a"}}) == "a"


async def test_an_evaluation_is_saved_and_a_failed_one_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with ModelServer(ArithmeticSolver()) as server:
        client = ClientConfig(api_base_url=server.base_url)
        config = EvalConfig(env_id="arithmetic", model="m", client_config=client, num_examples=2, save_results=True)
        outputs = await evaluations.run_evaluation(config)
        [path] = (tmp_path / "outputs/evals/arithmetic--m").iterdir()
        assert [each["reward"] for each in outputs["outputs"]] == [1.0] * 6
        assert len(results.load_outputs(path)) == 6
        broken = config.model_copy(update={"env_id": "no-such-environment"})
        with pytest.raises(ValueError, match="no-such-environment"):
            await evaluations.run_evaluations(EvalRunConfig(evals=[broken, config]))
    printed = capsys.readouterr().out
    for line in ("--- arithmetic | m ---", "reward: avg 1.000, std 0.000", "pass@2: 1.000"):
        assert line in printed


def caused(error, cause):
    error.__cause__ = cause
    return error


FAILED_TOOL = caused(ToolCallError("add"), caused(SandboxError("gone"), OSError("no space")))


def test_error_chains_end_at_the_first_error_of_another_kind_and_have_a_text():
    assert [type(error) for error in ErrorChain(FAILED_TOOL).chain] == [ToolCallError, SandboxError, OSError]
    assert (get_error_chain(None), get_error_chain(FAILED_TOOL, SandboxError)) == ([], [])
    assert get_vf_error_chain(FAILED_TOOL) == [FAILED_TOOL, FAILED_TOOL.__cause__]
    assert len(ErrorChain(FAILED_TOOL, get_vf_error_chain).chain) == 2
    chain = ErrorChain(FAILED_TOOL)
    texts = (
        "ToolCallError -> SandboxError -> OSError",
        "ToolCallError('add') -> SandboxError('gone') -> OSError('no space')",
    )
    assert (str(chain), repr(chain)) == texts
    told = {"error": "ToolCallError", "error_chain_repr": texts[1], "error_chain_str": texts[0]}
    assert error_info(FAILED_TOOL) == told
    assert [kind in chain for kind in (OSError, InfraError, KeyError)] == [True, True, False]
    errors = [ValueError("a"), ValueError("b"), caused(ValueError("c"), KeyError("d")), TypeError("e")]
    assert sorted(Counter(map(ErrorChain, errors)).values()) == [1, 1, 2]
    assert ErrorChain(errors[0]) != "ValueError"


def test_an_eval_config_becomes_a_run_configuration_that_refuses_unsupported_fields():
    client = ClientConfig(api_base_url="http://localhost:8000/v1", api_key_var="VLLM_API_KEY", timeout=60)
    same = {
        "env_id": "arithmetic", "env_args": {"largest": 9}, "model": "qwen3-8b", "num_examples": -1,
        "sampling_args": {"temperature": 0.7}, "rollouts_per_example": 8, "extra_env_kwargs": {"max_turns": 2},
        "state_columns": ["timed_out"],
    }  # fmt: skip
    run = EvalConfig(client_config=client, **same).run_config()
    assert {name: getattr(run, name) for name in same} == same
    assert (run.base_url, run.api_key_var, run.request_timeout) == ("http://localhost:8000/v1", "VLLM_API_KEY", 60)
    config = EvalConfig(env_id="arithmetic", model="m", client_config=ClientConfig(extra_headers={"X-Team": "a"}))
    with pytest.raises(ConfigError, match=r"client_config\.extra_headers"):
        config.run_config()
