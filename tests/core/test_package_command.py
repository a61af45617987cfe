"""``nightjar package``, with a program in place of the container engine."""

import json
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.model_server import FixedAnswer, ModelServer

BENCHMARK = """
import capitals_scorer
from nightjar.compat.nemo import benchmark

from pathlib import Path

KEYS = ".env"

@benchmark(
    name="capitals", dataset="data/rows.csv", prompt="prompt.txt", target_field="capital", requirements=["rich>=9"]
)
def score(sample):
    return capitals_scorer.score(sample)
"""
SCORER = """
from nightjar.compat.nemo import exact_match

def score(sample):
    return exact_match(sample)
"""

ENGINE = """#!{python}
import json, os, pathlib, shutil, subprocess, sys

here, words = pathlib.Path(__file__).parent, sys.argv[1:]
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
if words[0] == "build":
    image, context = here / "image", pathlib.Path(words[-1])
    for line in pathlib.Path(words[words.index("--file") + 1]).read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "COPY":
            source, target = json.loads(rest)
            place = image / target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(context / source, place)
        if word == "RUN" and rest.startswith("["):
            *_, option, last = said = json.loads(rest)
            print("installing", said[3:], flush=True)
            if "broken" in rest or option == "--requirement" and "no-such" in (image / last).read_text():
                sys.exit("nothing of this name")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a benchmark and with files that it does not use."""
    (tmp_path / "here/data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    for name, text in {
        "bench.py": BENCHMARK, "capitals_scorer.py": SCORER, "data/rows.csv": "country,capital\nFrance,Paris\n",
        "prompt.txt": "The capital of {country}?", ".env": "KEY=secret", "notes.txt": "mine", "more.txt": "more",
    }.items():  # fmt: skip
        (tmp_path / "here" / name).write_text(text)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("NIGHTJAR_SANDBOX", raising=False)
    return tmp_path / "here"


@pytest.fixture
def engine(tmp_path):
    """Puts a program named docker where it is found; gives the folder in which it keeps what it does."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(ENGINE.format(python=sys.executable))
    (tmp_path / "bin/docker").chmod(0o755)
    return tmp_path / "bin"


def package(*words):
    return CliRunner().invoke(app, ["package", *words])


def said(ended):
    return " ".join(str(ended.exception or ended.output).split())


def test_a_dockerfile_is_written(folder):
    ended = package("bench.py", "-o", "Dockerfile", "--base-image", "nightjar")
    assert ended.exit_code == 0
    assert ended.stdout.endswith(": bench.py, capitals_scorer.py, data/rows.csv, prompt.txt\n")
    lines = (folder / "Dockerfile").read_text().splitlines()
    assert "FROM nightjar" in lines
    assert 'COPY ["data/rows.csv", "data/rows.csv"]' in lines
    assert lines[-2:] == ['ENTRYPOINT ["nightjar"]', 'CMD ["serve", "bench.py", "--port", "9090"]']
    assert not any(".env" in line or "notes" in line or "true" in line for line in lines)
    assert package("bench.py", "-o", "Other").exit_code == 0
    assert "docker build -f Other -t" in (folder / "Other").read_text()


@pytest.mark.long
@pytest.mark.slow
def test_an_image_is_built_that_serves_the_benchmark_and_runs_it(folder, engine, capfd):
    ended = package("bench.py:capitals", "-t", "team/capitals:1", "--include", "more.txt", "--push")
    assert (ended.exit_code, ended.stdout) == (0, "Pushed team/capitals:1\n")
    version, built, _, pushed = (json.loads(line) for line in (engine / "calls.jsonl").read_text().splitlines())
    tag = "team/capitals:1"
    assert (version, built[:3], pushed) == (["version"], ["build", "--tag", tag], ["push", tag])
    inside = engine / "image"
    assert (inside / "more.txt").read_text() == "more"
    assert not (inside / ".env").exists()
    served = [sys.executable, "-m", "nightjar", "serve", "bench.py:capitals", "--export-data", "rows.jsonl"]
    assert subprocess.run(served, cwd=inside, capture_output=True, check=False).returncode == 0
    assert json.loads((inside / "rows.jsonl").read_text())["expected_answer"] == "Paris"
    with ModelServer(FixedAnswer("Paris")) as server:
        run = ["eval", "run", "bench.py:capitals", "-m", "m", "-b", server.url, "-r", "1", "--direct", "--json"]
        ran = subprocess.run([sys.executable, "-m", "nightjar", *run], cwd=inside, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert '"avg_reward": 1.0' in ran.stdout.decode()


def test_a_missing_requirement_fails_the_build(folder, engine):
    for requirement, code, told in [
        ("no-such-package", 1, "docker build ended with code 1, see above"), ("rich", 0, "Built nightjar-bench:latest"),
    ]:  # fmt: skip
        (folder / "needs.txt").write_text(f"{requirement}\n")
        ended = package("bench.py", "--requirements", "needs.txt")
        assert (ended.exit_code, told in said(ended)) == (code, True)


def test_without_an_engine_the_dockerfile_is_printed(folder):
    ended = package("bench.py")
    assert ended.exit_code == 1
    assert "FROM python:3.11-slim" in ended.stdout
    assert "pip install --no-cache-dir nightjar-evals==" in ended.stdout
    assert 'RUN ["pip", "install", "--no-cache-dir", "rich>=9"]' in ended.stdout
    assert "No container engine answers" in str(ended.exception)


def test_invalid_arguments_are_errors(folder):
    for words, match in {
        "gsm8k": "An image needs a file", "gone.py": "there is no file 'gone.py'",
        "bench.py:towns": "has no benchmark 'towns'. Choose one of: capitals",
        "bench.py --include ../other.txt": "is not a file in", "bench.py --requirements gone.txt": "is not a file in",
        "bench.py --base-image a\tb": "must be the name of an image",
        "bench.py -o Dockerfile --push": "excludes --tag and --push", "bench.py -o gone/Dockerfile": "cannot write",
    }.items():  # fmt: skip
        ended = package(*words.split(" "))
        assert ended.exit_code != 0
        assert match in said(ended) + " ".join(ended.output.replace("│", "").split())


def test_one_of_several_benchmarks_must_be_named(folder):
    second = BENCHMARK.replace('name="capitals"', 'name="towns"').replace("def score", "def other")
    (folder / "bench.py").write_text(BENCHMARK + second)
    assert "several benchmarks: capitals, towns. Name one: bench.py:capitals" in said(package("bench.py"))
    shutil.rmtree(folder / "data")
    assert 'CMD ["serve", "bench.py:towns"' in package("bench.py:towns").stdout
