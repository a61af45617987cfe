"""The repository keeps its promises: packaging, entry points, help, documents."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from nightjar.cli.app import app

ROOT = Path(__file__).parents[2]
COMMANDS = [
    ("demo",), ("sql",), ("publish",), ("up",), ("down",), ("model-server",), ("eval", "run"),
    ("env", "init"), ("env", "install"), ("env", "list"),
    ("warehouse", "compact"), ("warehouse", "doctor"), ("warehouse", "export"), ("warehouse", "import"),
    ("warehouse", "info"), ("warehouse", "prices"), ("warehouse", "prune"), ("warehouse", "rebuild"),
]  # fmt: skip


def test_the_list_of_commands_below_is_complete() -> None:
    tree = typer.main.get_command(app)
    found = [
        (name, *(() if not hasattr(command, "commands") else (child,)))
        for name, command in tree.commands.items()  # type: ignore[attr-defined]
        for child in getattr(command, "commands", {name: None})
    ]
    assert sorted(found) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_and_is_in_the_readme(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"])
    assert shown.exit_code == 0
    assert "Usage:" in shown.output
    documents = (ROOT / "README.md").read_text() + (ROOT / "CHANGELOG.md").read_text()
    assert f"nightjar {' '.join(command)}" in documents


def test_help_imports_nothing_slow() -> None:
    code = "import sys; from nightjar.cli.app import app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    slow = {"prefect", "datasets", "openai", "anthropic", "duckdb", "aiohttp", "pydantic", "numpy", "pandas"}
    assert slow.isdisjoint(loaded)


def test_the_library_never_imports_prefect() -> None:
    code = "import sys, nightjar.evaluation, nightjar.benchmarks.gsm8k; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "prefect" not in loaded


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[\[<>=,; ]", entry)[0].lower().replace("_", "-") for entry in wanted}
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert names <= pinned


def test_deployments_name_module_paths_and_no_folder() -> None:
    text = (ROOT / "deployments" / "prefect.yaml").read_text()
    declared = yaml.safe_load(text)
    assert declared["pull"] == []
    flows = "".join(path.read_text() for path in (ROOT / "flows").glob("*.py"))
    assert {one["name"] for one in declared["deployments"]} == set(re.findall(r'@flow\(name="(\w+)"', flows))
    for deployment in declared["deployments"]:
        module, _, function = deployment["entrypoint"].rpartition(".")
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
        assert f"def {function}(" in (ROOT / f"{module.replace('.', '/')}.py").read_text()


def test_links_in_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_wheel_holds_the_packages_their_sql_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"nightjar", "flows", "tasks", "blocks"}
    assert "nightjar/py.typed" in names
    assert "nightjar/__init__.pyi" in names
    assert "nightjar/warehouse/reading/tables.sql" in names
