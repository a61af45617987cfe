"""The repository keeps its promises: packaging, entry points, help, documents."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

from packaging.version import Version

from nightjar import __version__
from nightjar.cli.app import COMMANDS, GROUPS

ROOT = Path(__file__).parents[2]
GENERATED = re.compile(r"docs/reference/(?:(?:commands|python)/[\w-]+|sql|http)\.md")
"""Pages that the build of the site writes; test_site.py checks the links to them."""
PAGE = re.compile(r"(?<![\w/.])docs/[\w/-]+\.(?:md|ipynb)")


def test_every_command_is_documented():
    documents = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    commands = [command for command in [*GROUPS, *COMMANDS] if len(command.split()) < 3]
    assert [command for command in commands if f"nightjar {command}" not in documents] == []


def test_the_version_is_the_newest_of_the_changelog():
    headings = re.findall(r"^## \[(\d[\d.]*)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings == sorted(headings, key=Version, reverse=True)
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__ == headings[0]


def test_the_list_of_commands_imports_none_of_them():
    code = """
        import atexit, sys
        atexit.register(lambda: print(*sys.modules))
        from nightjar.cli import main
        sys.argv = ["nightjar", "--help"]
        main()
    """
    ended = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    loaded = ended.stdout.splitlines()[-1].split()
    ours = {module for module in loaded if module.split(".")[0] == "nightjar"}
    wanted = ("cli", "cli.app", "cli.terminal", "core", "core.secrecy", "core.secret_signs", "core.text", "errors")
    assert ours == {"nightjar", *(f"nightjar.{name}" for name in wanted)}
    slow = {"prefect", "datasets", "openai", "anthropic", "duckdb", "aiohttp", "pydantic", "numpy", "pandas"}
    assert slow.isdisjoint(loaded)


def test_every_dependency_is_pinned_to_a_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[\[<>=,; ]", entry)[0].lower().replace("_", "-") for entry in wanted}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)
    assert names <= {line.partition("==")[0].lower().replace("_", "-") for line in lines}


def test_links_in_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            path = (document.parent / target).resolve()
            assert path.exists() or GENERATED.fullmatch(str(path.relative_to(ROOT))), f"{document.name}: {target}"


def test_pages_that_code_and_configuration_name_exist():
    folders = ("nightjar", "flows", "tasks", "blocks", "tests", "configs", "deployments")
    files = [ROOT / "Makefile", ROOT / "pyproject.toml"]
    files += [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".yaml", ".toml"}
    ]
    named = {(file, name) for file in files for name in PAGE.findall(file.read_text("utf-8"))}
    assert len(named) > 50
    missing = [f"{file.relative_to(ROOT)}: {name}" for file, name in named if not (ROOT / name).exists()]
    assert [each for each in missing if not GENERATED.fullmatch(each.rpartition(" ")[2])] == []
