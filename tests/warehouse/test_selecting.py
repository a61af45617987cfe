"""The names of runs, and the conditions on their rollouts, that commands accept."""

import json
import shutil

import pytest

from nightjar import analysis
from nightjar.errors import ConfigError, WarehouseError
from nightjar.evaluation.resuming import check_where
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import Night, NightEvaluation


@pytest.fixture
def warehouse(tmp_path, write_run, monkeypatch):
    """Has runs of three days of one model, and one of another."""
    monkeypatch.chdir(tmp_path)
    warehouse = Warehouse(tmp_path / "warehouse")
    for run_id, told in {
        "0a1b": {"started_at": "2026-11-19T02:00:00+00:00"},
        "0a2c": {"started_at": "2026-11-20T02:00:00+00:00"},
        "3d4e": {"started_at": "2026-11-20T03:00:00+00:00"},
        "5f6a": {"started_at": "2026-11-21T02:00:00+00:00", "status": "running"},
        "7b8c": {"started_at": "2026-11-18T02:00:00+00:00", "model": "llama:8b", "env_id": "mmlu"},
    }.items():
        warehouse.publish(write_run(tmp_path / "published", run_id, **told), tidies=False)
    return warehouse


def asked(warehouse, *things):
    with analysis.selected(things, warehouse) as (where, runs):
        return [where is warehouse, *runs]


class TestInTheWarehouse:
    def test_by_id_by_model_or_by_model_and_day(self, warehouse):
        for names, runs in (
            (("0a1b", "3d"), ("0a1b", "3d4e")),
            (("openai/gpt@gsm8k", "llama:8b@mmlu"), ("3d4e", "7b8c")),
            (("openai/gpt@gsm8k@2026-11-20", "openai/gpt@gsm8k@2026-11-19"), ("3d4e", "0a1b")),
        ):  # fmt: skip
            assert asked(warehouse, *names) == [True, *([run] for run in runs)]

    def test_the_runs_of_a_night(self, warehouse):
        evaluations = [
            NightEvaluation(name, "same", "gsm8k", "openai/gpt", run_id=run_id)
            for name, run_id in (("a", "0a2c"), ("b", "3d4e"), ("pruned", "gone"), ("missing", None))
        ]
        warehouse.write_night(Night("nightly", "2026-11-20", "accepted", "all is well", evaluations=evaluations))
        assert asked(warehouse, "nightly@2026-11-20") == [True, ["0a2c", "3d4e"]]

    def test_other_names_list_similar_ones(self, warehouse, tmp_path):
        for name, says in (
            ("0a", r"'0a': 0a1b, 0a2c"),
            ("openai/gpt@gsm8k@2026-11-21", r"the name 'openai/gpt@gsm8k@2026-11-21'.* Similar names: .*@2026-11-20"),
            ("nobody", r"There is no run 'nobody' in .*, and no file or folder of that name"),
            ("x" * 5_000, r"There is no run 'xxx"),
        ):  # fmt: skip
            with pytest.raises(ConfigError, match=says):
                asked(warehouse, name)
        with pytest.raises(ConfigError, match=r"There is no finished run"):
            asked(Warehouse(tmp_path / "none"), "gpt@gsm8k")


class TestOnDisk:
    def test_runs_that_are_not_published(self, warehouse, tmp_path, write_run):
        path = write_run(tmp_path / "elsewhere", "9d0e")
        assert asked(warehouse, path, "0a1b") == [False, ["9d0e"], ["0a1b"]]
        assert asked(warehouse, str(path)) == [False, ["9d0e"]]
        write_run(tmp_path / "outputs/evals/gsm8k--m", "8c0e")
        assert asked(warehouse, "8c") == [False, ["8c0e"]]

    def test_of_a_folder_the_newest_complete_run_of_each_evaluation(self, warehouse, tmp_path, write_run):
        for run_id, told in {
            "a": {"started_at": "2026-11-19T02:00:00+00:00"},
            "b": {"started_at": "2026-11-20T02:00:00+00:00"},
            "c": {"started_at": "2026-11-21T02:00:00+00:00", "status": "failed"},
            "d": {"env_id": "mmlu", "status": "incomplete"},
            "e": {"env_id": "mmlu", "name": "mmlu-hard"},
        }.items():
            write_run(tmp_path / "runs/deep", run_id, **told)
        [_, found] = asked(warehouse, "runs")
        assert sorted(found) == ["b", "d", "e"]

    def test_bundles_of_nemo_evaluator_by_a_pattern(self, warehouse, tmp_path):
        for side in ("baseline", "candidate"):
            bundle(tmp_path / side)
        [is_given, [a], [b]] = asked(warehouse, "baseline/eval-*.json", tmp_path / "candidate")
        assert (is_given, a != b) == (False, True)
        with analysis.selected(["baseline/eval-*.json"], warehouse) as (where, [[run_id]]):
            assert where.query("SELECT env_id, scored FROM runs WHERE run_id = ?", [run_id]).rows == [("sums", 2)]
        assert analysis.compare_runs("baseline/eval-*.json", "candidate/eval-*.json").pairs == 2


def bundle(folder):
    """Writes what NeMo Evaluator does of two problems."""
    folder.mkdir()
    rows = [{"problem_idx": n, "repeat": 0, "reward": 1.0, "prompt": f"{n}?", "model_response": "4"} for n in (0, 1)]
    (folder / "results.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told = {"run_id": f"nemo-{folder.name}", "timestamp": "2026-11-20T02:00:00Z", "config": {"model": "m"}}
    (folder / "eval-sums.json").write_text(json.dumps({**told, "benchmark": {"name": "sums", "repeats": 1}}))


def test_files_with_the_same_run_are_named(warehouse, tmp_path, write_run):
    write_run(tmp_path / "a", "9e9e")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ConfigError, match=r"a' and '.*b' hold the same run: '9e9e'"):
        analysis.compare_runs(tmp_path / "a", tmp_path / "b", warehouse=warehouse)
    with pytest.raises(ConfigError, match="Both sides are run '0a1b'"):
        analysis.compare_runs("0a1b", "0a1", warehouse=warehouse)


def test_a_damaged_file_is_reported_once_and_results_that_are_not_imported_are_no_run(warehouse, tmp_path, caplog):
    (tmp_path / "cut.eval").write_bytes(b"PK")
    with (
        pytest.raises(WarehouseError, match=r"cut\.eval"),
        analysis.selected([tmp_path / "cut.eval"], warehouse, each=True),
    ):
        pass
    assert "cut.eval" not in caplog.text
    (tmp_path / "a b.eval").touch()
    with pytest.raises(ConfigError, match=r"import them first: nightjar warehouse import 'a b\.eval'"):
        find_stored_run("a b.eval", str(warehouse.location))


def test_a_condition_on_what_is_retried_sees_only_errors_of_the_run(tmp_path, run_writer):
    house = Warehouse(tmp_path / "house")
    for run_id, error in {"limited": "RateLimitError", "broken": "InternalServerError"}.items():
        failure = {**run_writer.failure, "error_chain_repr": f"ModelError -> {error}"}
        rows = [run_writer.failed(example, 0, error=failure) for example in (0, 1)]
        house.publish(run_writer.write(tmp_path / "runs" / run_id, rows, run_id=run_id))
    shutil.rmtree(tmp_path / "runs")
    run = find_stored_run("limited", warehouse=str(house.folder))
    assert run.path is None
    check_where(run, "error = 'RateLimitError' AND example_id = 1")
    check_where(run, "rate-limit")
    for condition in ("error = 'InternalServerError'", "timeout"):
        with pytest.raises(ConfigError, match="No failed rollout of run 'limited'"):
            check_where(run, condition)
    with pytest.raises(ConfigError, match='"nocolumn" not found'):
        check_where(run, "nocolumn = 1")
