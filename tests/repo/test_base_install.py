"""Everything a first run needs works without the extras; what needs an extra names it."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest
from packaging.requirements import Requirement

from nightjar.core.extras import extra_of
from nightjar.model_server import FixedAnswer, ModelServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HIDING = """\
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, *where):
        return None if name.partition(".")[0] in {modules!r} else self.finder.find_spec(name, *where)
sys.meta_path[:] = map(Without, sys.meta_path)
"""
"""A ``sitecustomize`` module: it hides modules from a process and from the processes that it starts."""

HIDDEN = {
    "altair", "anthropic", "datasets", "docker", "gymnasium", "inspect_ai", "ipywidgets", "lm_eval", "mlflow", "moto",
    "nltk", "pandas", "playwright", "polars", "prefect_dask", "prefect_docker", "pyarrow", "reasoning_gym", "s3fs",
    "textarena", "vl_convert", "wandb",
}  # fmt: skip
GSM8K = [{"question": f"What is {n} + 1?", "answer": f"It is {n + 1}.\n#### {n + 1}"} for n in range(3)]
FIRST_RUN = """
    import sys
    from starlette.testclient import TestClient
    from typer.testing import CliRunner
    import nightjar
    from nightjar import *
    from nightjar.cli.app import app
    from nightjar.view.server import Access, create_app
    from nightjar.warehouse import Warehouse

    print("all names", TextArenaEnv.__name__)

    def cli(*command):
        ended = CliRunner().invoke(app, command)
        print(ended.stdout if ended.exit_code == 0 else f"FAILED {command}: {ended.output} {ended.exception!r}")

    run = ["eval", "run", "gsm8k", "-m", "demo", "-b", sys.argv[1], "-a", '{"dataset": "gsm8k.jsonl"}', "-n", "3"]
    cli(*run, "-r", "2", "--direct")
    cli(*run, "-r", "1", "--direct", "--api-client-type", "anthropic_messages")
    cli("sql", "SELECT env_id, round(avg_reward, 4) AS mean FROM leaderboard", "--format", "csv")
    cli("compare", *[run.id for run in nightjar.runs()])
    cli("eval", "report", nightjar.runs()[0].id)
    print(nightjar.sql("SELECT 41 + 1 AS sum"))
    page = TestClient(create_app(Warehouse("outputs/warehouse"), Access(("testserver",)))).get("/")
    print("view", page.status_code, "gsm8k" in page.text)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Runs Python in an environment without the extras."""
    hiding = tmp_path_factory.mktemp("hiding")
    (hiding / "sitecustomize.py").write_text(HIDING.format(modules=HIDDEN))

    def python(folder, code, *arguments):
        env = {**os.environ, "PYTHONPATH": str(hiding), "NO_COLOR": "1", "COLUMNS": "200"}
        command = [sys.executable, "-c", dedent(code), *arguments]
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)

    return python


def test_a_first_run_needs_no_extra(python, tmp_path):
    (tmp_path / "gsm8k.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in GSM8K))
    with ModelServer(FixedAnswer("#### 2")) as server:  # right for one of three questions
        ended = python(tmp_path, FIRST_RUN, server.base_url)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("all names TextArenaEnv\n")
    assert ended.stdout.count("gsm8k,0.3333\n") == 1, ended.stdout
    assert "42" in ended.stdout
    assert "view 200 True\n" in ended.stdout
    assert "FAILED" not in ended.stdout, ended.stdout


NEEDY = (
    ("datasets", "environments.SingleTurnEnv(dataset=[{'question': '?'}]).get_dataset()"),
    ("datasets", "environments.data.load_example_dataset('gsm8k', path='rows.jsonl')"),
    ("datasets", "environments.load_environment('written')"),
    ("notebook", "nightjar.sql('SELECT 1').to_df()"),
    ("anthropic", "from nightjar.clients import setup_anthropic_client"),
    ("datasets", "sys.argv[1:] = 'sql', 'SELECT 1', '--format=parquet'; nightjar.cli.main()"),
)
"""The command is the last because it ends its process."""
TELLING = """
    import json
    import sys
    import nightjar.cli
    import nightjar.environments.data
    from nightjar import environments
    sys.stderr = sys.stdout
    for code in json.loads(sys.argv[1]):
        try:
            exec(code)
        except (Exception, SystemExit) as error:
            print(error)
        print("-" * 9)
"""


def test_what_needs_an_extra_names_it(python, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": "?", "answer": "#### 1"}\n')
    (tmp_path / "written.py").write_text("from datasets import load_dataset\ndef load_environment(): ...\n")
    (tmp_path / "outputs/warehouse/segments").mkdir(parents=True)
    ended = python(tmp_path, TELLING, json.dumps([code for _, code in NEEDY]))
    told = ended.stdout.split("-" * 9 + "\n")
    named = [re.findall(r"pip install 'nightjar-evals\[(\w+)\]'", text)[:1] for text in told]
    assert named == [[extra] for extra, _ in NEEDY], ended


def test_every_module_with_an_extra_is_in_the_extra_and_not_in_the_base():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {Requirement(line).name for line in project["dependencies"]}
    assert base.isdisjoint({"anthropic", "datasets", "pandas", "pyarrow"})
    for module in ("anthropic", "datasets"):
        assert module in {Requirement(line).name for line in project["optional-dependencies"][extra_of(module)]}
