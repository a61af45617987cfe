"""RunDirectory: where a run lives, and that one process writes it at a time."""

import json
import os
import re
import subprocess
import sys
import threading

import pytest

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


class TestFolder:
    def test_all_spellings_of_an_environment_are_found(self, tmp_path):
        names = ["my-env--a--b", "my_env--a--b", "my-env--b", "my-env-2--a--b", "my-env--a--b--c"]
        for name in names:
            (tmp_path / "evals" / name).mkdir(parents=True)
        folder = runs_folder("ada/my_env@1.2", "a/b", tmp_path)
        assert sorted(path.name for path in runs_folders(folder, "ada/my_env@1.2", "a/b")) == names[:2]
        assert runs_folders(tmp_path / "elsewhere" / "my-env--m", "my-env", "m") == []


class TestReservedRoom:
    """A folder where the new file would be made keeps it from being made, as a full disk does."""

    @pytest.fixture
    def full(self, tmp_path):
        """The path of a run whose metadata, ``{"status": "running"}``, cannot be replaced by a new file."""
        with RunDirectory(tmp_path / "r1") as directory:
            directory.write_metadata({"status": "running"})
        (tmp_path / "r1" / f".metadata.json.{os.getpid()}.tmp").mkdir()
        return tmp_path / "r1"

    def test_it_is_used_once_if_there_is_no_other_and_freed_at_the_end(self, full):
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

    def test_it_grows_with_the_metadata(self, tmp_path):
        with RunDirectory(tmp_path / "r1") as directory:
            directory.write_metadata({"status": "running", "tags": ["x" * 60_000]})
            assert not (directory.path / ".metadata.json.reserve").exists()
            directory.reserve_room()
            directory.write_metadata({"status": "running", "tags": ["x" * 60_000]})
            assert (directory.path / ".metadata.json.reserve").stat().st_size > 120_000


class TestLock:
    @pytest.fixture
    def holder(self, tmp_path):
        """Another process that holds the lock until its stdin is closed."""
        command = [sys.executable, "-c", HOLD, str(tmp_path / "r1")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout.readline() == b"locked\n"
            yield holder
            holder.stdin.close()

    @pytest.mark.slow
    def test_a_process_can_wait_for_its_holder(self, tmp_path, holder):
        threading.Timer(0.2, holder.stdin.close).start()
        with RunDirectory(tmp_path / "r1", patience_seconds=60):
            holder.wait(60)

    def test_it_is_held_against_this_process_too_and_free_afterwards(self, tmp_path):
        for _ in range(2):
            with RunDirectory(tmp_path / "a" / "r1"):
                held = (tmp_path / "a" / "r1" / ".lock").read_text()
                with pytest.raises(RunLockedError), RunDirectory(tmp_path / "a" / "r1"):
                    pass
        assert held == f"process {os.getpid()} on {process_host()}"

    def test_a_writer_in_another_container_does_not_count_as_gone(self, tmp_path):
        with RunDirectory(tmp_path / "r1") as directory:
            pass
        for host, is_gone in ((process_host(), True), (f"{process_host()}.1", False)):
            (tmp_path / "r1" / ".lock").write_text(f"process {2**22 + 1} on {host}")  # more than any process id
            assert directory.is_abandoned() == is_gone

    @pytest.mark.slow
    def test_an_ended_writer_is_gone_even_if_its_parent_never_waits_for_it(self, tmp_path, holder):
        directory = RunDirectory(tmp_path / "r1")
        assert not directory.is_abandoned()
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and keeps its id
        assert directory.is_abandoned()

    def test_a_folder_that_cannot_be_created(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(RunDirectoryError, match="file/r1"), RunDirectory(tmp_path / "file" / "r1"):
            pass


class TestContent:
    @pytest.fixture
    def directory(self, tmp_path):
        with RunDirectory(tmp_path / "r1") as directory:
            yield directory

    def test_written_files_are_read_back_and_the_configuration_makes_it_a_run(self, directory):
        config = {"env_id": "gsm8k", "n": 1, "selected_examples": 1, "dataset_fingerprint": None}
        assert not directory.exists()
        with pytest.raises(RunDirectoryError, match=r"r1': .*config\.json"):
            directory.read_config()
        directory.write_config(config)
        directory.write_metadata({"status": "running", "pass_at_k": {1: 0.5}})
        assert (directory.exists(), directory.read_config()) == (True, config)
        assert directory.read_metadata() == {"status": "running", "pass_at_k": {"1": 0.5}}

    @pytest.mark.parametrize(
        ("name", "content", "field"),
        [
            *(("metadata.json", content, "") for content in ("{", "", "[1]")),
            ("metadata.json", '{"time_ms": "1"}', "time_ms"),
            ("metadata.json", '{"started_at": "yesterday"}', "started_at"),
            ("metadata.json", '{"errors": []}', "errors"),
            *(
                ("config.json", f'{{"selected_examples": {n}, "dataset_fingerprint": null}}', "selected_examples")
                for n in ('"5"', "-1", "null")
            ),
        ],
    )
    def test_an_error_names_the_damaged_file_and_field(self, directory, name, content, field):
        (directory.path / name).write_text(content)
        with pytest.raises(RunDirectoryError, match=rf"{re.escape(name)} .*{field}"):
            (directory.read_config if name == "config.json" else directory.read_metadata)()
