"""Scratch folders: removed after use, and those of killed processes by the next process."""

import os
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

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
def python(tmp_path, fork):
    """Starts Python code whose temporary folder is a test's own."""
    with ExitStack() as ending:
        variables = {**os.environ, "TMPDIR": str(tmp_path)}
        yield lambda code: ending.enter_context(fork.python(code, env=variables, stdout=PIPE))


def hold(python):
    process = python(HOLD)
    folder = Path(process.stdout.readline().strip()).parent
    os.utime(folder, (0, 0))
    return process, folder


@pytest.mark.slow
def test_the_folder_of_a_killed_process_is_removed_and_one_in_use_is_not(python, tmp_path):
    killed, left = hold(python)
    _, in_use = hold(python)
    new, other = tmp_path / "nightjar-scratch-new", tmp_path / "somebody-else"
    for folder in (new, other):
        folder.mkdir()
    killed.kill()
    killed.wait()
    assert left.is_dir()
    assert python(USE).communicate()[0] == "True\n"
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {in_use, new, other}
