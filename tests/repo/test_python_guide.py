"""docs/guides/python.md and docs/guides/notebook.ipynb do what they say: both run from top to bottom."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "docs" / "guides" / "notebook.ipynb"
_LONGEST_SECONDS = 120

pytestmark = [pytest.mark.long, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("NIGHTJAR_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


def test_the_guide_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    guide = ModuleType("guide")
    for block in re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL):
        exec(compile(block, "docs/guides/python.md", "exec"), vars(guide))
        assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.MULTILINE)


def test_the_notebook_runs_from_top_to_bottom_and_shows_tables_and_plots(tmp_path: Path) -> None:
    copy = tmp_path / NOTEBOOK.name
    copy.write_bytes(NOTEBOOK.read_bytes())
    run = [sys.executable, "-c", "from nbclient.cli import main; main()", copy, "--inplace"]
    ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=_LONGEST_SECONDS)
    assert ended.returncode == 0, ended.stderr
    ran = nbformat.read(copy, as_version=4)
    shown = [shown_by(cell) for cell in ran.cells if cell.cell_type == "code"]
    html = "".join(texts.get("text/html", "") for texts in shown)
    assert html.count('<div class="nightjar-panel">') == 5
    assert html.count("vegaEmbed(") == 2


def test_the_stored_cells_of_the_notebook_have_no_output() -> None:
    assert not any(cell.get("outputs") for cell in nbformat.read(NOTEBOOK, as_version=4).cells)


def shown_by(cell: nbformat.NotebookNode) -> dict[str, str]:
    """Returns what a cell prints, by stream or type."""
    found: dict[str, str] = {}
    for output in cell.outputs:
        texts = {output.name: output.text} if output.output_type == "stream" else output.get("data", {})
        for kind, text in texts.items():
            found[kind] = found.get(kind, "") + str(text)
    return found
