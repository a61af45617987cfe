"""Draws a sample of a large matrix of cases: ``make test`` tries the sample, ``make fuzz`` tries all cases."""

import os
import random


def drawn(cases, size, seed=1):
    """Returns the same ``size`` of the cases each time, in their order; all of them for ``make fuzz``."""
    cases = list(cases)
    if os.environ.get("NIGHTJAR_EVERY_CASE") or size >= len(cases):
        return cases
    return [cases[position] for position in sorted(random.Random(seed).sample(range(len(cases)), size))]
