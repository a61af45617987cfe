"""A run whose id the warehouse holds as another run: refused with what differs, and published under a new id."""

import json
import pickle
import uuid

import pytest

from nightjar.core.failures import FailureClass, failure_class
from nightjar.engine.runs import RunDirectory
from nightjar.errors import RunConflictError
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.warehouse import Warehouse

SETTINGS = {
    "extra_env_kwargs": {}, "base_url": "http://localhost:1/v1", "api_client_type": "openai_chat_completions",
    "sampling_args": {"temperature": 0.5}, "dataset_fingerprint": "f00d",
}  # fmt: skip


@pytest.fixture(params=["folder", "store", "tables"])
def house(request, tmp_path):
    """A warehouse of each kind: a folder, an object store, and tables."""
    if request.param == "folder":
        return Warehouse(tmp_path / "warehouse")
    return Warehouse(f"memory://{uuid.uuid4()}" if request.param == "store" else f"duckdb:{tmp_path}/warehouse.db")


@pytest.fixture
def folder_house(tmp_path):
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def run(tmp_path, write_run):
    """Writes a run called 'run' into a folder of its own."""

    def write(folder, **changes):
        return write_run(tmp_path / folder, "run", **{**SETTINGS, **changes})

    return write


def with_hashes(run_dir, hashes):
    """Gives examples other contents."""
    path = run_dir / "results.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row | {"example_hash": hashes.get(row["example_id"], row["example_hash"])} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run_dir


def files_of(run_dir):
    return {path.name: path.read_bytes() for path in run_dir.iterdir() if path.name != ".lock"}


def everything(house):
    return house.query("SELECT run_id, model, scored, published_at FROM runs ORDER BY ALL").rows


@pytest.mark.slow
def test_another_setting_is_refused_in_both_orders(house, run):
    house.publish(run("a"))
    before = everything(house)
    for number, (change, says) in enumerate([
        ({"model": "other"}, "model: held 'openai/gpt', offered 'other'"),
        ({"env_id": "math"}, "env_id: held 'gsm8k', offered 'math'"),
        ({"env_args": {"level": 3}}, "env_args: held {}, offered {'level': 3}"),
        ({"extra_env_kwargs": {"max_turns": 2}}, "extra_env_kwargs: held {}, offered {'max_turns': 2}"),
        ({"base_url": "http://b/v1"}, "base_url: held 'http://localhost:1/v1', offered 'http://b/v1'"),
        ({"sampling_args": {}}, "sampling_args: held {'temperature': 0.5}, offered {}"),
        ({"rollouts_per_example": 3}, "rollouts_per_example: held 2, offered 3"),
        ({"env_id": "math", "model": "b"},
         "env_id: held 'gsm8k', offered 'math'; model: held 'openai/gpt', offered 'b'"),
    ]):  # fmt: skip
        for size in (3, 1) if number == 0 else (3,):
            offered = run(f"{number}-{size}", examples=size, **change)
            with pytest.raises(RunConflictError) as caught:
                house.publish(offered)
            assert list(caught.value.differences) == list(change)
            assert says in str(caught.value)
            assert f"nightjar publish {offered} --new-id" in str(caught.value)
    assert everything(house) == before


def test_another_dataset_is_refused(house, run):
    house.publish(run("a"))
    offered = with_hashes(run("b", examples=3, dataset_fingerprint="beef"), {1: "another"})
    with pytest.raises(RunConflictError, match="dataset_fingerprint: held 'f00d', offered 'beef'"):
        house.publish(offered)
    unknown = with_hashes(run("c", examples=3, dataset_fingerprint=None), {1: "another"})
    with pytest.raises(RunConflictError, match="example_hash of example 1: held 'hash-1', offered 'another'"):
        house.publish(unknown)
    assert house.query("SELECT count(*) FROM rollouts").rows == [(4,)]


@pytest.mark.slow
def test_the_same_run_with_newer_content_is_published(house, write_run, tmp_path):
    changes = {
        "retry": {"attempt": 2},
        "more": {"examples": 3, "dataset_fingerprint": "beef"},
        "spelling": {"env_id": "ada/gsm8k"},
        "tags": {"tags": ["again"], "env_version": "2.0"},
        "rubric": {"version_info": {"scoring_hash": "other"}},
        "unknown": {"env_args": None, "base_url": None, "sampling_args": None, "started_at": "2026-01-02T00:00Z"},
    }
    for run_id, change in changes.items():
        house.publish(write_run(tmp_path / "a", run_id, **SETTINGS), tidies=False)
        again = house.publish(write_run(tmp_path / "b", run_id, **SETTINGS | change), tidies=False)
        assert again.is_update or house.location.startswith("duckdb:"), run_id
    assert house.query("SELECT count(*) FROM runs").rows == [(len(changes),)]


def test_replicas_may_change(house, run):
    """Metadata name all places that answered, ``config.json`` the endpoint that a resume compares."""
    config = json.dumps({"base_url": "http://a/v1", "api_client_type": "openai_chat_completions"})
    for folder, urls, attempt in (("a", "http://a/v1", 1), ("b", "http://a/v1,http://b/v1", 2)):
        run_dir = run(folder, base_url=urls, attempt=attempt)
        (run_dir / "config.json").write_text(config)
        house.publish(run_dir)
    assert house.query("SELECT base_url FROM runs").rows == [("http://a/v1,http://b/v1",)]


def test_the_other_program_may_resume_an_imported_run_with_other_settings(house, run):
    house.publish(run("a", original={"by": "other"}))
    changed = {"rollouts_per_example": 3, "base_url": "http://b/v1", "dataset_fingerprint": None, "attempt": 2}
    house.publish(with_hashes(run("b", original={"by": "other"}, **changed), {1: "another"}))
    assert house.query("SELECT rollouts_per_example FROM runs").rows == [(3,)]
    with pytest.raises(RunConflictError, match="model"):
        house.publish(run("c", original={"by": "other"}, model="other", attempt=3))


def test_a_sound_run_in_a_pack_is_compared(folder_house, run, write_run, nightjar, damage, caplog):
    folder_house.publish(run("a"))
    folder_house.publish(write_run(folder_house.folder.parent / "others", "second"))
    assert nightjar("warehouse", "compact", "--now", "--warehouse", folder_house.folder).code == 0
    with pytest.raises(RunConflictError, match="model"):
        folder_house.publish(run("b", model="other"))
    damage.truncate(next(folder_house.folder.glob("segments/*/runs.parquet")))
    assert folder_house.publish(run("b", attempt=2)).is_new
    assert "is not compared with its copy in" in caplog.text


def test_a_copy_or_push_into_another_warehouse_is_refused_before_anything_is_stored(tmp_path, run):
    from nightjar.evaluation.moving import push_to
    from nightjar.warehouse.exported_runs import copy_run

    source, target = (Warehouse(tmp_path / name) for name in ("source", "target"))
    source.publish(run("a", examples=3))
    target.publish(run("b", model="other"))
    with pytest.raises(RunConflictError, match="model: held 'other', offered 'openai/gpt'"):
        copy_run(source.store(), target.store(), "run")
    assert target.query("SELECT model FROM runs").rows == [("other",)]
    offered = run("c", examples=3)
    stored = StoredRun(RunDirectory(offered).read_metadata(), offered, Warehouse(tmp_path / "here"))
    with pytest.raises(RunConflictError, match=f"nightjar publish {offered} --new-id --warehouse {target.location}"):
        push_to(stored, target)
    assert not (tmp_path / "target" / "directories").exists()


def test_a_folder_that_holds_another_run_is_not_overwritten(run):
    from nightjar.evaluation.part_runs import take_over

    held, offered = run("a"), run("b", model="other", examples=3)
    before = files_of(held)
    with pytest.raises(RunConflictError, match=f"The folder {held} holds another run 'run': model"):
        take_over(RunDirectory(offered), RunDirectory(held))
    assert files_of(held) == before


def test_a_rebuild_and_an_import_report_it_and_continue(tmp_path, folder_house, run, write_run):
    from nightjar.importers.importing import import_all
    from nightjar.warehouse.repair import rebuild

    dirs = [run("a"), run("b", model="other", examples=3), run("c", attempt=2)]
    report = rebuild(folder_house.store(), dirs)
    assert list(report.failures) == [str(dirs[1])]
    assert "model: held 'openai/gpt', offered 'other'" in report.failures[str(dirs[1])]
    assert folder_house.query("SELECT model, scored FROM runs").rows == [("openai/gpt", 4)]
    outcomes = list(import_all(folder_house, [dirs[1], write_run(tmp_path / "d", "third")]))
    assert [bool(each.error) for each in outcomes] == [True, False]
    assert "holds another run 'run': model" in outcomes[0].error


def test_the_command_refuses_and_changes_nothing_and_a_new_id_publishes_both(folder_house, run, nightjar):
    folder_house.publish(run("a"))
    offered, before = run("b", model="other", published_at=None), everything(folder_house)
    (offered / "config.json").write_text(json.dumps({"selected_examples": 2, "dataset_fingerprint": "f00d"}))
    content = files_of(offered)
    ended = nightjar("publish", offered, "--warehouse", folder_house.folder)
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 0)
    assert (everything(folder_house), files_of(offered)) == (before, content)
    ended = nightjar("publish", offered, "--new-id", "--warehouse", folder_house.folder)
    assert ended.code == 0, ended.err
    [(_, _), (run_id, _)] = folder_house.query("SELECT run_id, model FROM runs ORDER BY model").rows
    assert json.loads((offered / "metadata.json").read_text())["run_id"] == run_id != "run"
    assert json.loads((offered / "config.json").read_text())["run_id"] == run_id
    assert "Already there" in nightjar("publish", offered, "--warehouse", folder_house.folder).out


def test_the_error_survives_a_process_boundary_and_cuts_long_values():
    error = RunConflictError("run", "The warehouse w", {"env_args": ({"text": "x" * 1000}, {})}, "Do this")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), vars(error))
    assert len(str(error)) < 400
    assert failure_class(error) is FailureClass.SETTINGS
