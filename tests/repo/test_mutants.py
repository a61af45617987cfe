"""The script that changes places of the library finds them, and changes nothing else."""

import runpy
from pathlib import Path

SOURCE = '''
limit: int = 3
def first(values, least=0):
    """Returns 1 value."""
    if not values and least < 2:
        raise ValueError(f"{1 + 1} is missing")
    values.sort()
    return None if least else values
'''


def test_mutants_change_one_place_of_a_function_each() -> None:
    mutants = runpy.run_path(str(Path(__file__).parents[1] / "mutation" / "mutants.py"))
    found = mutants["Finder"]("a.py", SOURCE.encode()).find()
    changed = []
    for mutant in found:
        start, end, text = mutant.change
        lines = (SOURCE[:start] + text + SOURCE[end:]).splitlines()
        changed.append([line.strip() for line in lines if line not in SOURCE.splitlines()])
    assert changed == [
        ["if (not (not values and least < 2)):"], ["if not values or least < 2:"], ["if (values) and least < 2:"],
        ["if not values and least <= 2:"], ["if not values and least < 3:"], ["pass"], ["pass"], ["return None"],
    ]  # fmt: skip
    assert {mutant.key.split(" | ")[1] for mutant in found} == {"first"}
