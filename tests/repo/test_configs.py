"""The files in ``configs`` run as their first lines say, on a model that they start."""

import json
import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.evaluation.config.registry import Registry
from nightjar.evaluation.config.suite import load_suite
from nightjar.model_server import ArithmeticSolver, ModelServer

pytestmark = pytest.mark.slow

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(path.relative_to(CONFIGS.parent) for path in CONFIGS.rglob("*.toml") if path.name != "task.toml")
NAMES = ["Ada Lovelace", "Alan Turing", "Grace Hopper"]
ROWS = {
    "alphabet_sort": {"names": NAMES},
    "drop": {"passage": "It rained.", "question": "?", "answers_spans": {"spans": ["rain"], "types": ["span"]}},
    "gsm8k": {"question": "What is 2 + 3?", "answer": "2 + 3 = 5 #### 5"},
    "humaneval": {"task_id": "X/0", "prompt": "def f():\n", "test": "def check(f): f()\n", "entry_point": "f"},
    "math500": {"problem": "What is 2 + 3?", "answer": "5"},
    "math_python": {"problem": "What is 2 + 3?", "solution": r"\boxed{5}"},
    "mgsm": {"question": "What is 2 + 3?", "answer_number": 5},
    "mmlu": {"question": "2 + 3?", "subject": "anatomy", "choices": ["5", "6", "7", "8"], "answer": 0},
    "mmlu_pro": {"question": "2 + 3?", "options": ["5", "6"], "answer": "A", "category": "math"},
    "triviaqa": {"question": "Who?", "answer": {"value": "Ada"}},
    "xstest": {"prompt": "How?", "type": "homonyms", "label": "safe"},
}
"""A row of each benchmark as the hub has it."""


def command_of(file):
    """Returns what the first lines of a file say to type, after the model was started."""
    text = (CONFIGS.parent / file).read_text()
    opening = text.partition("\n\n")[0]
    assert 'endpoint_id = "local"' not in text or "#   nightjar model-server --port 8000 &" in opening
    [command] = re.findall(r"^#   nightjar (eval run .*)$", opening, flags=re.MULTILINE)
    return command.split()


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_file_runs_as_it_says(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTJAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PRIME_API_KEY", "no-key")
    gpqa = {name: name for name in import_module("nightjar.benchmarks.gpqa").DATA.columns}
    for name, row in {**ROWS, "gpqa": gpqa}.items():
        for path in import_module(f"nightjar.benchmarks.{name}").DATA.paths():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(row))
    shutil.copytree(CONFIGS, "configs")
    with ModelServer(ArithmeticSolver()) as server:
        for copied in Path("configs").rglob("*.toml"):
            copied.write_text(copied.read_text().replace(":8000", f":{server.port}"))
        with Path("configs/endpoints.toml").open("a") as registry:
            registry.write('\n[[endpoint]]\nendpoint_id = "openai/gpt-4.1-mini"\nextends = "local"\n')
        ended = CliRunner().invoke(app, [*command_of(file), "--direct", "--json"])
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert {run["status"] for run in (told if isinstance(told, list) else [told])} == {"completed"}


def test_a_policy_says_how_to_use_it():
    from nightjar.analysis.gates.policy import GatePolicy

    for file in CONFIGS.rglob("*.yaml"):
        GatePolicy.read(file)
        opening = file.read_text().partition("\n\n")[0]
        assert f"#   nightjar gate --policy {file.relative_to(CONFIGS.parent)} " in opening


def test_what_the_page_shows_is_right(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (CONFIGS.parent / "docs" / "guides" / "suites.md").read_text()
    registry, suite = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    Path("configs").mkdir()
    Path("configs/endpoints.toml").write_text(registry)
    Path("nightly.toml").write_text(suite)
    evaluations = load_suite(Path("nightly.toml"), {})
    assert [each.label for each in evaluations][:3] == ["gsm8k", "gsm8k-qwen", "arithmetic temperature=0.0 largest=9"]
    assert len(evaluations) == 6
    assert Registry.load(Path("configs")).fields("qwen3-here")["headers"] == {"X-Team": "$TEAM_TOKEN"}
