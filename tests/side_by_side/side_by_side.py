"""Evaluates the same environments with verifiers and with Nightjar, against one model server, and compares.

make side-by-side              compares
make side-by-side RECORD=1     also keeps what verifiers gave in recorded/, where the tests find it
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from answers import ScriptedModel
from cases import CASES
from comparing import read_outcome
from differences import unexpected
from run_environments import write

from nightjar.model_server import ModelServer

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
COMMAND = "make side-by-side RECORD=1"
PATIENCE_SECONDS = 600


def evaluate(python, library, base_url, folder, names=()):
    """Evaluates the cases with one library, in a process of its own."""
    command = [python, str(HERE / "run_environments.py"), library, base_url, str(folder), *names]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-4000:]}")


def record(case, outcome):
    RECORDED.mkdir(exist_ok=True)
    made_with = outcome["made_with"] | {"command": COMMAND}
    write(RECORDED / f"{case}.json", outcome | {"made_with": made_with})


def report(case, original, nightjar):
    """Prints how two outcomes differ, and returns whether they differ as the table says."""
    found = unexpected(case, original, nightjar)
    print(f"{case}: {'DIFFERENT' if found else 'equal'}")
    for difference in found:
        print(f"  {difference}")
    return not found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--original", required=True, help="an interpreter that has verifiers 0.1.14")
    parser.add_argument("--record", action="store_true", help="keep what verifiers gives in recorded/")
    parser.add_argument("names", nargs="*", metavar="CASE", help="all unless given")
    options = parser.parse_args()
    names = options.names or [case.name for case in CASES]
    with tempfile.TemporaryDirectory() as folder, ModelServer(ScriptedModel()) as server:
        original, nightjar = Path(folder, "original"), Path(folder, "nightjar")
        evaluate(options.original, "verifiers", server.url, original, names)
        if options.record:
            for name in names:
                record(name, read_outcome(original, name))
        evaluate(sys.executable, "nightjar", server.url, nightjar, names)
        are_equal = [report(name, read_outcome(original, name), read_outcome(nightjar, name)) for name in names]
    print(f"{sum(are_equal)} of {len(names)} cases are equal, but for the differences in {HERE.name}/differences.py")
    sys.exit(not all(are_equal))


if __name__ == "__main__":
    main()
