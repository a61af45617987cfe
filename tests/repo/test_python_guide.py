"""docs/guides/python.md and docs/guides/notebook.ipynb do what they say: both run from top to bottom."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "docs" / "guides" / "notebook.ipynb"
pytestmark = [pytest.mark.long, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("NIGHTJAR_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


def test_the_guide_prints_what_it_says(capsys):
    guide = ModuleType("guide")
    for block in re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL):
        exec(compile(block, "docs/guides/python.md", "exec"), vars(guide))
        assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.MULTILINE)


def test_the_notebook_runs_from_top_to_bottom_and_shows_tables_and_plots(tmp_path):
    import nbformat

    assert not any(cell.get("outputs") for cell in nbformat.read(NOTEBOOK, as_version=4).cells)
    copy = tmp_path / NOTEBOOK.name
    copy.write_bytes(NOTEBOOK.read_bytes())
    run = [sys.executable, "-c", "from nbclient.cli import main; main()", copy, "--inplace"]
    ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    cells = nbformat.read(copy, as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    html = "".join(str(output.get("data", {}).get("text/html", "")) for output in outputs)
    assert html.count('<div class="nightjar-panel">') == 5
    assert html.count("vegaEmbed(") == 2
