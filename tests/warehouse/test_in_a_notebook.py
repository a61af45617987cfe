"""DuckDB in a notebook, where its progress bar wants ipywidgets: publishing and asking work without them."""

import os
import subprocess
import sys

KERNEL = """
class Shell:
    config = {"IPKernelApp": {}}

def get_ipython():
    return Shell()
"""
"""What DuckDB looks at to know that it is in a notebook."""
PROBE = """
import IPython  # before DuckDB, which looks at it when it is imported
import duckdb
from pathlib import Path
from nightjar.warehouse.database import connect_scratch
try:
    duckdb.connect().execute("SET enable_progress_bar = false")
    print("no notebook")
except duckdb.InvalidInputException as error:
    print("ipywidgets" in str(error))
connection = connect_scratch(Path("spill"))
print(connection.execute("SELECT current_setting('enable_progress_bar'), current_setting('TimeZone')").fetchall())
"""


def test_a_scratch_database_opens_without_ipywidgets(tmp_path):
    (tmp_path / "IPython.py").write_text(KERNEL)
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(tmp_path)}, "timeout": 600}
    ran = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, **options)
    assert ran.stdout.splitlines() == ["True", "[(False, 'UTC')]"], ran.stderr
