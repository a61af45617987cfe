"""How runs divide a limit among them."""

from __future__ import annotations

from collections.abc import Sequence


def fair_shares(limit: int, wanted: Sequence[int]) -> list[int]:
    """Divides a limit among runs: evenly, and what one does not want among the others; of a rest the first have more.

    Example:
        >>> fair_shares(8, [8, 2, 8]), fair_shares(2, [4, 4, 4])
        ([3, 2, 3], [1, 1, 0])
    """
    shares, left = [0] * len(wanted), limit
    modest_first = sorted(range(len(wanted)), key=lambda run: (wanted[run], -run))
    for runs_left, run in zip(range(len(wanted), 0, -1), modest_first, strict=True):
        shares[run] = min(wanted[run], left // runs_left)
        left -= shares[run]
    return shares
