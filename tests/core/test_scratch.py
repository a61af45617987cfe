"""Scratch folders: removed after use, and those of killed processes by the next process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOLD = """
import time
from nightjar.core.files import scratch_folder
with scratch_folder() as folder:
    (folder / "large").write_bytes(bytes(1000))
    print(folder, flush=True)
    time.sleep(60)
"""
USE = "from nightjar.core.files import scratch_folder\nwith scratch_folder() as folder: print(folder.is_dir())"


@pytest.fixture
def python(tmp_path):
    """Starts Python code whose temporary folder is a test's own."""
    started = []

    def python(code):
        command = [sys.executable, "-c", code]
        env = {**os.environ, "TMPDIR": str(tmp_path)}
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield python
    for process in started:
        with process:
            process.kill()


def hold(python):
    """Starts a process with a scratch folder that looks old, and returns both."""
    process = python(HOLD)
    folder = Path(process.stdout.readline().strip()).parent
    os.utime(folder, (0, 0))
    return process, folder


def test_the_folder_of_a_killed_process_is_removed_and_one_in_use_is_not(python, tmp_path):
    killed, left = hold(python)
    _, in_use = hold(python)
    new = tmp_path / "nightjar-scratch-new"
    new.mkdir()
    other = tmp_path / "somebody-else"
    other.mkdir()
    killed.kill()
    killed.wait()
    assert left.is_dir()
    assert python(USE).communicate()[0] == "True\n"
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {in_use, new, other}
