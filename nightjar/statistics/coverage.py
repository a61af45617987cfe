"""Coverage: the share of a run's planned rollouts that are scored."""

from __future__ import annotations

LEAST_COVERAGE = 0.95
"""With a lower coverage, a run is marked, and it is left out of rankings and lines, because failures are not random."""


def has_low_coverage(coverage: float | None) -> bool:
    """Returns whether too few rollouts are scored to compare the mean with other runs. Unknown coverage counts as low.

    The SQL macro with the same name uses the same limit.

    >>> has_low_coverage(31 / 96), has_low_coverage(0.95)
    (True, False)
    """
    return (coverage or 0.0) < LEAST_COVERAGE
