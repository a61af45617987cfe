"""Programs for processes of their own: what publishes into a warehouse, and what reads it meanwhile."""

PUBLISH = """
import sys
from nightjar.warehouse import Warehouse
location, *run_dirs = sys.argv[1:]
for run_dir in run_dirs:
    Warehouse(location).publish(run_dir)
"""

READ = """
import sys
import time
from nightjar.warehouse import Warehouse
warehouse, runs, seen = Warehouse(sys.argv[1]), int(sys.argv[2]), 0
uneven = "SELECT run_id FROM rollouts GROUP BY run_id HAVING count(*) <> 4"
while seen < runs:
    assert warehouse.query(uneven).rows == []
    before, [(seen,)] = seen, warehouse.query("SELECT count(*) FROM runs").rows
    assert seen >= before, f"{before - seen} runs are gone"
    time.sleep(0.1)
"""
"""Ends when so many runs are there; each has four rollouts."""
