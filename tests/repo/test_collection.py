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


@pytest.mark.slow
def test_collection_imports_no_heavy_package() -> None:
    def imported(arguments: str, modules: str = "") -> set[str]:
        code = f"""
            import sys{modules}
            import pytest
            assert pytest.main({arguments!r}.split()) == 0
            print(*{{name.partition(".")[0] for name in sys.modules}})
        """
        code = "\n".join(line.strip() for line in code.splitlines())
        ended = subprocess.run([sys.executable, "-c", code], cwd=TESTS.parent, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return set(ended.stdout.splitlines()[-1].split())

    light = imported("--version", f", {', '.join(sorted(LIGHT))}")
    collected = imported("--collect-only -q -p no:cacheprovider tests")
    installed = {name for name in packages_distributions() if not name.startswith("_")}
    assert sorted((collected - light) & installed) == []
