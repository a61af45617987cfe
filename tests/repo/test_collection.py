"""Collecting the tests is cheap: test modules import what is heavy inside the tests and fixtures that need it."""

import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LIGHT = {
    "aiohttp", "annotated_types", "anyio", "duckdb", "execnet", "filelock", "fsspec", "nightjar", "orjson", "packaging",
    "platformdirs", "psutil", "pydantic", "pytest", "pytest_asyncio", "pytest_cov", "sniffio", "tenacity", "typer",
    "xdist", "yaml",
}  # fmt: skip
"""Packages that test modules may import when they are collected; each brings packages of its own."""


CODE = f"""
import sys, {", ".join(sorted(LIGHT))}
def packages():
    return {{name.partition(".")[0] for name in sys.modules}}
light = packages()
quietly = "-q -W ignore::pytest.PytestAssertRewriteWarning -p no:cacheprovider"
assert pytest.main(["--collect-only", *quietly.split(), "tests"]) == 0
print(*packages() - light)
"""


@pytest.mark.slow
def test_collection_imports_no_heavy_package() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], cwd=TESTS.parent, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    installed = {name for name in packages_distributions() if not name.startswith("_")}
    assert sorted(installed & {*ended.stdout.splitlines()[-1].split()}) == []
