"""RunDirectory: where a run lives, and that one process writes it at a time."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

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
    def test_environment_and_model(self, tmp_path):
        folder = runs_folder("gsm8k", "openai/gpt-4.1-mini", tmp_path)
        assert folder == tmp_path / "evals" / "gsm8k--openai--gpt-4.1-mini"

    def test_an_owner_is_left_out(self, tmp_path):
        assert runs_folder("prime/gsm8k", "m", tmp_path) == tmp_path / "evals" / "gsm8k--m"

    def test_the_environment_s_own_outputs_folder_where_there_is_one(self, tmp_path):
        own = tmp_path / "my_env" / "outputs"
        own.mkdir(parents=True)
        assert runs_folder("owner/my-env", "m", environments_dir=tmp_path) == own / "evals" / "my-env--m"

    def test_outputs_otherwise(self, tmp_path):
        assert str(runs_folder("my-env", "m", environments_dir=tmp_path)) == "outputs/evals/my-env--m"

    def test_the_same_environment_written_otherwise(self, tmp_path):
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

    def test_is_used_once_when_there_is_no_other(self, full):
        with RunDirectory(full) as directory:
            directory.reserve_room()
            directory.write_metadata({"status": "failed"})
            assert json.loads((full / "metadata.json").read_text())["status"] == "failed"
            with pytest.raises(RunDirectoryError, match=r"Cannot write '.*/metadata\.json': Is a directory"):
                directory.write_metadata({"status": "completed"})
            assert directory.read_metadata() == {"status": "failed"}

    def test_grows_with_the_metadata(self, tmp_path):
        with RunDirectory(tmp_path / "r1") as directory:
            directory.write_metadata({"status": "running", "tags": ["x" * 60_000]})
            assert not (directory.path / ".metadata.json.reserve").exists()
            directory.reserve_room()
            directory.write_metadata({"status": "running", "tags": ["x" * 60_000]})
            assert (directory.path / ".metadata.json.reserve").stat().st_size > 120_000

    def test_is_free_again_afterwards(self, full):
        with RunDirectory(full) as directory:
            directory.reserve_room()
            assert (full / ".metadata.json.reserve").stat().st_size == 16384
        assert not (full / ".metadata.json.reserve").exists()

    def test_without_it_the_old_metadata_stays(self, full):
        with (
            RunDirectory(full) as directory,
            pytest.raises(RunDirectoryError, match=r"metadata\.json': Is a directory"),
        ):
            directory.write_metadata({"status": "failed"})
        assert RunDirectory(full).read_metadata() == {"status": "running"}


class TestLock:
    def test_makes_the_folder_and_says_who_holds_it(self, tmp_path):
        with RunDirectory(tmp_path / "a" / "r1"):
            held = (tmp_path / "a" / "r1" / ".lock").read_text()
        assert held == f"process {os.getpid()} on {socket.gethostname()}"

    def test_a_second_process_is_told_who_holds_it(self, tmp_path):
        command = [sys.executable, "-c", HOLD, str(tmp_path / "r1")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout.readline() == b"locked\n"
            with pytest.raises(RunLockedError) as caught, RunDirectory(tmp_path / "r1"):
                pass
            holder.stdin.close()
        where = f"process {holder.pid} on {socket.gethostname()}"
        assert str(caught.value) == f"Run 'r1' is being written by {where}. Wait for it, or stop it."

    def test_who_has_patience_waits_for_its_holder(self, tmp_path):
        command = [sys.executable, "-c", HOLD, str(tmp_path / "r1")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            threading.Timer(0.2, holder.stdin.close).start()
            with RunDirectory(tmp_path / "r1", patience_seconds=60):
                holder.wait(60)

    def test_it_is_free_when_its_holder_is_killed(self, tmp_path):
        command = [sys.executable, "-c", HOLD, str(tmp_path / "r1")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            holder.kill()
            holder.wait()
            with RunDirectory(tmp_path / "r1") as directory:
                assert directory.run_id == "r1"

    def test_a_second_one_in_this_process_is_refused_too(self, tmp_path):
        with RunDirectory(tmp_path / "r1"), pytest.raises(RunLockedError), RunDirectory(tmp_path / "r1"):
            pass

    def test_it_is_free_after_leaving(self, tmp_path):
        for _ in range(2):
            with RunDirectory(tmp_path / "r1"):
                pass

    def test_a_folder_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(RunDirectoryError, match="Cannot write"), RunDirectory(tmp_path / "file" / "r1"):
            pass


class TestContent:
    @pytest.fixture
    def directory(self, tmp_path):
        with RunDirectory(tmp_path / "r1") as directory:
            yield directory

    def test_there_is_no_run_without_a_configuration(self, directory):
        assert not directory.exists()
        directory.write_config({})
        assert directory.exists()

    def test_what_is_written_is_read_back(self, directory):
        config = {"env_id": "gsm8k", "n": 1, "selected_examples": 1, "dataset_fingerprint": None}
        directory.write_config(config)
        directory.write_metadata({"status": "running", "pass_at_k": {1: 0.5}})
        assert directory.read_config() == config
        assert directory.read_metadata() == {"status": "running", "pass_at_k": {"1": 0.5}}

    def test_a_missing_file_is_named(self, directory):
        with pytest.raises(RunDirectoryError, match=r"No run in .*r1': cannot read config\.json: No such file"):
            directory.read_config()

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            ("{", ""),
            ("", ""),
            ("[1]", "input should be a valid dictionary"),
            ('{"time_ms": "1"}', "time_ms: input should be a valid number"),
            ('{"started_at": "yesterday"}', "started_at: input should be a valid datetime"),
            ('{"errors": []}', "errors: input should be a valid dictionary"),
        ],
    )
    def test_damaged_metadata_is_named(self, directory, content, what):
        (directory.path / "metadata.json").write_text(content)
        with pytest.raises(RunDirectoryError, match=rf"metadata\.json is damaged: {what}"):
            directory.read_metadata()

    @pytest.mark.parametrize("count", ['"5"', "-1", "null"])
    def test_a_damaged_configuration_is_named(self, directory, count):
        text = f'{{"selected_examples": {count}, "dataset_fingerprint": null}}'
        (directory.path / "config.json").write_text(text)
        with pytest.raises(RunDirectoryError, match=r"config\.json is damaged: selected_examples: input should be "):
            directory.read_config()
