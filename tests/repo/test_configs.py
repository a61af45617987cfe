"""The files in ``configs`` run as their first lines say, on a model that they start."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.config.gate_policy import GatePolicy
from nightjar.config.registry import Registry
from nightjar.config.suite import load_suite
from nightjar.testing import ArithmeticSolver, ModelServer

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(path.relative_to(CONFIGS.parent) for path in CONFIGS.rglob("*.toml"))


def command_of(file: Path) -> list[str]:
    """Returns what the first lines of a file say to type, after the model was started."""
    opening = (CONFIGS.parent / file).read_text().partition("\n\n")[0]
    [command] = re.findall(r"^#   nightjar (eval run .*)$", opening, flags=re.MULTILINE)
    assert "#   nightjar model-server --port 8000 &" in opening.splitlines()
    return command.split()


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_file_runs_as_it_says(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CONFIGS, "configs")
    with ModelServer(ArithmeticSolver()) as server:
        for copied in Path("configs").rglob("*.toml"):
            copied.write_text(copied.read_text().replace(":8000", f":{server.port}"))
        ended = CliRunner().invoke(app, [*command_of(file), "--direct", "--json"])
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert {run["status"] for run in (told if isinstance(told, list) else [told])} == {"completed"}


@pytest.mark.parametrize("file", sorted(CONFIGS.rglob("*.yaml")), ids=lambda file: file.name)
def test_a_policy_says_how_to_use_it(file: Path) -> None:
    GatePolicy.read(file)
    opening = file.read_text().partition("\n\n")[0]
    assert f"#   nightjar gate --policy {file.relative_to(CONFIGS.parent)} " in opening


def test_what_the_page_shows_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (CONFIGS.parent / "docs" / "suites.md").read_text()
    registry, suite = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    Path("configs").mkdir()
    Path("configs/endpoints.toml").write_text(registry)
    Path("nightly.toml").write_text(suite)
    evaluations = load_suite(Path("nightly.toml"), {})
    assert [each.label for each in evaluations][:3] == ["gsm8k", "gsm8k-qwen", "arithmetic temperature=0.0 largest=9"]
    assert len(evaluations) == 6
    assert Registry.load(Path("configs")).fields("qwen3-here")["headers"] == {"X-Team": "$TEAM_TOKEN"}


def test_the_registry_shows_all_that_there_is() -> None:
    registry = Registry.load(CONFIGS)
    assert len(registry.rows["local-pair"]) == 2
    assert registry.fields("local-completions")["api_client_type"] == "openai_completions"
