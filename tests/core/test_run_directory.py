"""RunDirectory: where a run lives, and that one process writes it at a time."""

import json
import os
import signal
import subprocess
import threading

import psutil
import pytest
from waiting import until

from nightjar.core.process_ids import process_host
from nightjar.engine.runs import RunDirectory, runs_folder, runs_folders
from nightjar.errors import RunDirectoryError, RunLockedError

HOLD = """
import sys
from pathlib import Path
from nightjar.engine.runs import RunDirectory
with RunDirectory(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_all_spellings_of_an_environment_are_found(tmp_path):
    names = ["my-env--a--b", "my_env--a--b", "my-env--b", "my-env-2--a--b", "my-env--a--b--c"]
    for name in names:
        (tmp_path / "evals" / name).mkdir(parents=True)
    folder = runs_folder("ada/my_env@1.2", "a/b", tmp_path)
    assert sorted(path.name for path in runs_folders(folder, "ada/my_env@1.2", "a/b")) == names[:2]
    assert runs_folders(tmp_path / "elsewhere" / "my-env--m", "my-env", "m") == []


def test_reserved_room_is_used_once_grows_with_the_metadata_and_is_freed_at_the_end(tmp_path):
    """A folder where the new file would be made keeps it from being made, as a full disk does."""
    full = tmp_path / "r1"
    with RunDirectory(full) as directory:
        directory.write_metadata({"status": "running"})
    (full / f".metadata.json.{os.getpid()}.tmp").mkdir()
    reserve = full / ".metadata.json.reserve"
    with RunDirectory(full) as directory:
        with pytest.raises(RunDirectoryError, match=r"metadata\.json'"):
            directory.write_metadata({"status": "failed"})
        assert directory.read_metadata() == {"status": "running"}
        directory.reserve_room()
        assert reserve.stat().st_size == 16384
        directory.write_metadata({"status": "failed"})
        assert json.loads((full / "metadata.json").read_text())["status"] == "failed"
        with pytest.raises(RunDirectoryError, match=r"metadata\.json'"):
            directory.write_metadata({"status": "completed"})
        assert directory.read_metadata() == {"status": "failed"}
        directory.reserve_room()
    assert not reserve.exists()
    with RunDirectory(tmp_path / "r2") as directory:
        directory.write_metadata({"status": "running", "tags": ["x" * 60_000]})
        assert not (directory.path / ".metadata.json.reserve").exists()
        directory.reserve_room()
        directory.write_metadata({"status": "running", "tags": ["x" * 60_000]})
        assert (directory.path / ".metadata.json.reserve").stat().st_size > 120_000


@pytest.fixture
def holder(tmp_path, fork):
    """Another process that holds the lock until its stdin is closed."""
    with fork.python(HOLD, tmp_path / "r1", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == "locked\n"
        yield holder


@pytest.mark.slow
def test_a_process_can_wait_for_the_holder_of_the_lock(tmp_path, holder):
    threading.Timer(0.2, holder.stdin.close).start()
    with RunDirectory(tmp_path / "r1", patience_seconds=60):
        holder.wait(60)


def test_the_lock_is_held_against_this_process_too_and_free_afterwards(tmp_path):
    for _ in range(2):
        with RunDirectory(tmp_path / "a" / "r1"):
            held = (tmp_path / "a" / "r1" / ".lock").read_text()
            with pytest.raises(RunLockedError), RunDirectory(tmp_path / "a" / "r1"):
                pass
    assert held == f"process {os.getpid()} on {process_host()}"
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="file/r1"), RunDirectory(tmp_path / "file" / "r1"):
        pass


def test_a_writer_in_another_container_does_not_count_as_gone(tmp_path):
    with RunDirectory(tmp_path / "r1") as directory:
        pass
    for host, is_gone in ((process_host(), True), (f"{process_host()}.1", False)):
        (tmp_path / "r1" / ".lock").write_text(f"process {2**22 + 1} on {host}")  # more than any process id
        assert directory.is_abandoned() == is_gone


@pytest.mark.slow
def test_an_ended_writer_is_gone_even_if_its_parent_never_waits_for_it(tmp_path, holder):
    directory = RunDirectory(tmp_path / "r1")
    assert not directory.is_abandoned()
    os.kill(holder.pid, signal.SIGKILL)  # its parent, the fork server, waits for it when it is asked to
    until(lambda: psutil.Process(holder.pid).status() == psutil.STATUS_ZOMBIE)
    assert directory.is_abandoned()


@pytest.fixture
def directory(tmp_path):
    with RunDirectory(tmp_path / "r1") as directory:
        yield directory


def test_written_files_are_read_back_and_the_configuration_makes_it_a_run(directory):
    config = {"env_id": "gsm8k", "n": 1, "selected_examples": 1, "dataset_fingerprint": None}
    assert not directory.exists()
    with pytest.raises(RunDirectoryError, match=r"r1': .*config\.json"):
        directory.read_config()
    directory.write_config(config)
    directory.write_metadata({"status": "running", "pass_at_k": {1: 0.5}})
    assert (directory.exists(), directory.read_config()) == (True, config)
    assert directory.read_metadata() == {"status": "running", "pass_at_k": {"1": 0.5}}


def test_an_error_names_the_damaged_file_and_field(directory):
    metadata = {
        "{": "", "": "", "[1]": "", '{"time_ms": "1"}': "time_ms", '{"started_at": "yesterday"}': "started_at",
        '{"errors": []}': "errors",
    }  # fmt: skip
    for content, field in metadata.items():
        (directory.path / "metadata.json").write_text(content)
        with pytest.raises(RunDirectoryError, match=rf"metadata\.json .*{field}"):
            directory.read_metadata()
    for examples in ('"5"', "-1", "null"):
        config = f'{{"selected_examples": {examples}, "dataset_fingerprint": null}}'
        (directory.path / "config.json").write_text(config)
        with pytest.raises(RunDirectoryError, match=r"config\.json .*selected_examples"):
            directory.read_config()
