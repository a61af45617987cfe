"""The examples of docs/guides/prefect.md run as they stand there."""

import re
from pathlib import Path

import pytest

from nightjar.model_server import ArithmeticSolver, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.usefixtures("prefect_server")
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "prefect.md"


def test_the_documented_tasks_run_in_a_users_flow(own_folder):
    section = PAGE.read_text().partition("## The tasks in a flow of your own")[2].partition("\n## ")[0]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 20
    names = {"__name__": "example"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), names)
    with ModelServer(ArithmeticSolver()) as server:
        assert names["nightly"]("m", server.url) == 1.0
        assert server.stats().answered == 60
    assert Warehouse("outputs/warehouse").query("SELECT scored FROM runs").rows == [(60,)]
