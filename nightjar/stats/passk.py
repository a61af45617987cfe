"""pass@k and pass^k: does one of k rollouts succeed, do all of them?"""

from __future__ import annotations

from collections.abc import Iterable
from math import comb, fsum


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Returns the chance that at least one of k rollouts, drawn from n without replacement, is correct.

    The unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code" (2021), equation 1.

    Raises:
        ValueError: k is larger than n.
    """
    return 1.0 - comb(n - correct, _checked(n, k)) / comb(n, k)


def pass_all_k(n: int, correct: int, k: int) -> float:
    """Returns the chance that all of k rollouts, drawn from n without replacement, are correct (pass^k).

    The estimator of Yao et al., "τ-bench" (2024), section 4.

    Raises:
        ValueError: k is larger than n.
    """
    return comb(correct, _checked(n, k)) / comb(n, k)


def _checked(n: int, k: int) -> int:
    if not 1 <= k <= n:
        raise ValueError(f"k must be between 1 and n = {n}, found {k}")
    return k


def pass_curves(correct_counts: Iterable[int], n: int) -> tuple[dict[int, float], dict[int, float]]:
    """Returns pass@k and pass^k for k = 1, 2, 4, … up to n, each averaged over the examples.

    Args:
        correct_counts: for each example with all n rollouts scored, how many are correct.
        n: rollouts of an example.

    Returns:
        Two dicts from k to the value; both empty when there is no complete example.
    """
    counts = list(correct_counts)
    if not counts:
        return {}, {}
    powers = [1 << exponent for exponent in range(n.bit_length())]
    return (
        {k: fsum(pass_at_k(n, c, k) for c in counts) / len(counts) for k in powers},
        {k: fsum(pass_all_k(n, c, k) for c in counts) / len(counts) for k in powers},
    )
