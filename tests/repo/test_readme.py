"""What the README says to type works as it stands there."""

import os
import re
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.model_server import FixedAnswer, ModelServer

pytestmark = pytest.mark.slow

README = (Path(__file__).parents[2] / "README.md").read_text()


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a block of the README in an empty folder, without Prefect, with this Python's ``nightjar``."""
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PREFECT_HOME": str(folder / "prefect"), "PREFECT_API_URL": "",
    }  # fmt: skip
    return subprocess.run(
        ["bash", "-euc", f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.long
def test_the_first_evaluation_and_the_first_question(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    [evaluation] = [block for block in blocks if "nightjar model-server --port" in block]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    waiting = "\n".join(
        line
        if "eval run" not in line
        else f"until curl -sf 127.0.0.1:8000/health >/dev/null; do sleep 0.1; done\n{line}"
        for line in evaluation.splitlines()
    ).replace("8000", port)
    evaluated = run(waiting, tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    assert "60 of 60 scored" in evaluated.stdout
    assert "env_id" in evaluated.stdout


@pytest.mark.long
def test_the_environment_of_the_readme_runs(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "capitals.py").write_text(code)
    with ModelServer(FixedAnswer("Paris, of course.")) as server:
        ran = run(f"nightjar eval run capitals -m m -b {server.url} -n 1 -r 1 --direct", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"Avg reward\s+1\.0000", ran.stdout)


@pytest.mark.parametrize(
    "flag", re.findall(r"(?<![\w-])(--?[a-zA-Z][a-z-]*)", " ".join(re.findall(r"nightjar eval run[^\n`]*", README)))
)
def test_every_flag_of_the_readme_is_in_the_help(flag: str) -> None:
    assert flag in help_of_eval_run()


@cache
def help_of_eval_run() -> str:
    return CliRunner().invoke(app, ["eval", "run", "--help"], env={"COLUMNS": "200"}).stdout
