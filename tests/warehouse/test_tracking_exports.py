"""``nightjar export --to mlflow`` and ``--to wandb``, read back with MLflow's client and from W&B's files."""

import json
import os
import struct
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.exporters.mlflow_run import export_to_mlflow

pytestmark = pytest.mark.slow

STARTED, FINISHED = "2026-01-02T03:04:05+00:00", "2026-01-02T03:05:05+00:00"
SERVER = """
from mlflow.server import app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, app, threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def run_dir(tmp_path, run_writer):
    """Four rollouts of two examples: rewards 1, 0, 0.5 and a failure; the metric ``f1@5`` has no rollouts' values."""
    told = {
        "run_id": "r1", "status": "completed", "started_at": STARTED, "finished_at": FINISHED, "time_ms": 60_000.0,
        "tags": ["nightly", "x=1"],
        "avg_reward": 0.5, "stderr": 0.25, "avg_metrics": {"correct": 0.75, "f1@5": 0.125, "f1%5": 0.5},
        "pass_at_k": {"1": 0.5}, "rollouts": 4, "scored": 3, "failed": 1, "coverage": 0.75, "model": "openai/gpt",
        "usage": {"input_tokens": 40.0, "output_tokens": 20.0},
    }  # fmt: skip
    run_dir = run_writer.write(tmp_path / "run", run_writer.rollouts, **told)
    config = {"model": "openai/gpt", "sampling_args": {"temperature": 0.5}, "max_tokens": None, "name": "nightly gpt"}
    (run_dir / "config.json").write_text(json.dumps(config))
    return run_dir


@pytest.fixture
def mlflow(monkeypatch, tmp_path):
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_ALLOW_FILE_STORE", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))
    return pytest.importorskip("mlflow")


def read_back(client):
    [experiment] = [each for each in client.search_experiments() if each.name != "Default"]
    return experiment, client.search_runs([experiment.experiment_id])


def table_of(client, run, folder):
    path = client.download_artifacts(run.info.run_id, "samples.json", str(folder))
    table = json.loads(Path(path).read_text())
    return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]


def milliseconds(moment):
    return datetime.fromisoformat(moment).timestamp() * 1000


def test_mlflow_shows_figures_settings_and_samples_of_a_run_and_a_second_export_updates_it(
    run_dir, nightjar, mlflow, tmp_path
):
    where = ("--to", "mlflow", "--into", tmp_path / "mlruns")
    ended = nightjar("export", run_dir, *where)
    client = mlflow.MlflowClient((tmp_path / "mlruns").as_uri())
    experiment, [run] = read_back(client)
    assert ended.out == f"Wrote run {run.info.run_id} of experiment 'gsm8k': 4 rollouts\n"
    assert (experiment.name, run.info.run_name, run.info.status) == ("gsm8k", "nightly gpt", "FINISHED")
    assert (run.info.start_time, run.info.end_time) == (milliseconds(STARTED), milliseconds(FINISHED))
    expected = {
        "reward": 0.5, "reward_stderr": 0.25, "metrics/correct": 0.75, "metrics/f1_5": 0.5, "metrics/f1_5_2": 0.125,
        "pass_at_1": 0.5, "rollouts": 4.0, "scored": 3.0, "failed": 1.0, "coverage": 0.75, "seconds": 60.0,
        "input_tokens": 40.0, "output_tokens": 20.0,
    }  # fmt: skip
    assert {name: run.data.metrics.get(name) for name in expected} == expected
    params = run.data.params
    assert (params["model"], params["sampling_args.temperature"], params["env_id"]) == ("openai/gpt", "0.5", "gsm8k")
    assert "max_tokens" not in params
    assert (run.data.tags["nightjar.run_id"], run.data.tags["nightjar.tags"]) == ("r1", "nightly, x=1")
    rows = table_of(client, run, tmp_path)
    found = [(row["example_id"], row["rollout_index"], row["reward"], row["metrics/correct"]) for row in rows]
    assert found == [(0, 0, 1.0, 1.0), (0, 1, 0.0, 0.0), (1, 0, 0.5, 0.5), (1, 1, None, None)]
    assert rows[0]["prompt"].startswith("user: ")
    assert [bool(row["error"]) for row in rows] == [False, False, False, True]
    assert len(mlflow.artifacts.load_text(f"{run.info.artifact_uri}/config.json")) > 0
    metadata = json.loads((run_dir / "metadata.json").read_text())
    (run_dir / "metadata.json").write_text(json.dumps(metadata | {"avg_reward": 0.25, "status": "incomplete"}))
    config = json.loads((run_dir / "config.json").read_text())
    (run_dir / "config.json").write_text(json.dumps(config | {"max_concurrent": 9, "model": "openai/gpt-2"}))
    ended = nightjar("export", run_dir, *where)
    assert ended.out.startswith("Updated run ")
    assert "config.json has the new values of model\n" in ended.err
    _, [run] = read_back(client)
    assert (run.data.metrics["reward"], run.info.status) == (0.25, "FAILED")
    assert (run.data.params["model"], run.data.params["max_concurrent"]) == ("openai/gpt", "9")
    told = json.loads(mlflow.artifacts.load_text(f"{run.info.artifact_uri}/config.json"))
    assert told["model"] == "openai/gpt-2"
    assert len(client.get_metric_history(run.info.run_id, "reward")) == 2
    assert len(client.get_metric_history(run.info.run_id, "scored")) == 1


def test_an_export_finishes_the_run_of_an_export_that_was_killed(run_dir, mlflow, tmp_path):
    client = mlflow.MlflowClient((tmp_path / "mlruns").as_uri())
    begun = client.create_run(client.create_experiment("gsm8k"), tags={"nightjar.run_id": "r1"})
    written = export_to_mlflow(find_stored_run(str(run_dir)), str(tmp_path / "mlruns"))
    assert (written.run_id, written.is_new) == (begun.info.run_id, False)
    _, [run] = read_back(client)
    assert (run.info.status, run.data.metrics["reward"]) == ("FINISHED", 0.5)


@pytest.mark.long
def test_mlflow_server_takes_a_run(run_dir, nightjar, mlflow, tmp_path):
    env = os.environ | {
        "_MLFLOW_SERVER_FILE_STORE": str(tmp_path / "store"), "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(tmp_path / "artifacts"),
    }  # fmt: skip
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            ended = [nightjar("export", run_dir, "--to", "mlflow", "--into", url) for _ in range(2)]
            assert (ended[0].code, ended[1].out.startswith("Updated")) == (0, True)
            client = mlflow.MlflowClient(url)
            _, [run] = read_back(client)
            assert (run.data.metrics["reward"], run.data.tags["nightjar.run_id"]) == (0.5, "r1")
            assert len(table_of(client, run, tmp_path)) == 4
        finally:
            server.kill()


def test_a_server_that_is_not_there_is_an_error_of_one_line(run_dir, nightjar, mlflow, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    url = "http://me:secret-password@127.0.0.1:9"
    ended = nightjar("export", run_dir, "--to", "mlflow", "--into", url)
    assert (ended.code, ended.err.count("\n")) == (1, 0)
    assert "MLflow at http://" in ended.err
    assert "secret-password" not in ended.err


@pytest.fixture
def wandb(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_DISABLE_WEAVE", "true")
    for name in ("NIGHTJAR_HOME", "WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return pytest.importorskip("wandb")


def records_of(path, record_type):
    """Yields the records of a ``.wandb`` file: a header of 7 bytes, then a log in LevelDB's format."""
    content, position, parts = path.read_bytes(), 7, b""
    while position + 7 <= len(content):
        if (left := 32_768 - position % 32_768) < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = record_type()
            record.ParseFromString(parts)
            yield record
            parts = b""


def read_offline(folder):
    from wandb.proto import wandb_internal_pb2

    [path] = folder.glob("*.wandb")
    records = list(records_of(path, wandb_internal_pb2.Record))
    [run] = [record.run for record in records if record.HasField("run")]
    figures, summary = {}, {}
    for record in records:
        figures |= {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        summary |= {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.summary.update}
    config = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in run.config.update}
    [table] = folder.glob("files/media/table/*.json")
    return SimpleNamespace(
        run=run, config=config, figures=figures, summary=summary, table=json.loads(table.read_text())
    )


def test_wandb_run_has_figures_settings_and_samples_and_a_second_export_replaces_its_folder(
    run_dir, nightjar, wandb, tmp_path
):
    ended = nightjar("export", run_dir, "--to", "wandb")
    [folder] = (tmp_path / "wandb").iterdir()
    assert ended.out == f"Wrote wandb/{folder.name}: 4 of 4 rollouts\n"
    assert ended.err == f"Nothing was sent. To upload the run: wandb sync wandb/{folder.name}\n"
    found = read_offline(folder)
    assert (found.run.project, found.run.run_id, found.run.display_name) == ("gsm8k", "r1", "nightly gpt")
    assert list(found.run.tags) == ["nightly", "x=1"]
    assert (found.config["model"], found.config["sampling_args"]) == ("openai/gpt", {"temperature": 0.5})
    assert (found.config["started_at"], found.config["finished_at"]) == (STARTED, FINISHED)
    expected = {"reward": 0.5, "reward_stderr": 0.25, "metrics/f1@5": 0.125, "pass_at_1": 0.5, "failed": 1.0}
    assert {name: found.figures[name] for name in expected} == expected
    assert found.summary["status"] == "completed"
    rows = [dict(zip(found.table["columns"], row, strict=True)) for row in found.table["data"]]
    assert [(row["example_id"], row["rollout_index"], row["reward"]) for row in rows] == [
        (0, 0, 1.0), (0, 1, 0.0), (1, 0, 0.5), (1, 1, None),
    ]  # fmt: skip

    (tmp_path / "wandb/.r1.tmp").mkdir()
    (tmp_path / "wandb/offline-run-20260101_000000-r1x").mkdir()
    nightjar("export", run_dir, "--to", "wandb")
    names = sorted(path.name.split("-")[-1] for path in (tmp_path / "wandb").iterdir())
    assert names == ["r1", "r1x"]


def test_a_missing_extra_is_named_with_its_command(run_dir, nightjar, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mlflow", "wandb"):
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r})")
        ended = nightjar("export", run_dir, "--to", name)
        assert (ended.code, f"pip install 'nightjar-evals[{name}]'" in ended.err) == (1, True)


def test_inspect_logs_go_into_a_folder_that_the_next_command_names_in_quotes(run_dir, nightjar, tmp_path):
    ended = nightjar("export", run_dir, "--to", "inspect", "--into", tmp_path / "logs")
    assert ended.code == 0
    assert [path.suffix for path in (tmp_path / "logs").iterdir()] == [".json"]
    assert nightjar("export", run_dir, "--html", tmp_path / "run.html", "--into", tmp_path).code == 2
    for name, quoted in (("d.json", f"{tmp_path}/d.json"), ("odd dir [a] #1", f"'{tmp_path}/odd dir [a] #1'")):
        ended = nightjar("export", run_dir, "--to", "inspect", "--into", tmp_path / name)
        assert ended.err.splitlines()[-1] == f"Next: inspect view start --log-dir {quoted}"
        assert len(list((tmp_path / name).iterdir())) == 1


def test_inspect_logs_replace_only_a_log_of_the_same_run(run_dir, nightjar, tmp_path):
    policy, settings, log = tmp_path / "policy.yaml", tmp_path / "settings.json", tmp_path / "log.json"
    policy.write_text("version: 1\n")
    settings.write_text('{"eval": 1}')
    for place in (("--to", "inspect", "--into", policy), ("--inspect-log", policy), ("--inspect-log", settings)):
        assert nightjar("export", run_dir, *place).code == 1
    assert (policy.read_text(), settings.read_text()) == ("version: 1\n", '{"eval": 1}')
    assert [nightjar("export", run_dir, "--inspect-log", log).code for _ in range(2)] == [0, 0]
    log.write_text(log.read_text().replace('"run_id": "r1"', '"run_id": "r2"'))
    ended = nightjar("export", run_dir, "--inspect-log", log)
    assert (ended.code, "is not an Inspect log of run 'r1'" in ended.err) == (1, True)


def test_the_help_of_export_names_the_extras(nightjar):
    words = " ".join(nightjar("export", "--help").out.replace("│", " ").split())
    assert "extras nightjar-evals[mlflow] and nightjar-evals[wandb]." in words
