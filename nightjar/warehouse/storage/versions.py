"""Versions of a run's published content: which of two counts, wherever and in whatever order they were published.

A version is text that sorts: the number of attempts in the ledger, which only grows; the time of the newest of them;
the time of the run's end; the time of the publish; and a hash of the content.

>>> make_version(attempts=500, newest_attempt=1763712000.5, ended=1763712001, published=1763712002, digest="9f03")
'000000500-1763712000500-1763712001000-1763712002000-9f03'
"""

from __future__ import annotations

_PROGRESS_FIELDS = 3


def make_version(*, attempts: int, newest_attempt: float, ended: float, published: float, digest: str) -> str:
    """Returns a version; moments are in Unix time, 0 where there is none."""
    moments = "-".join(f"{max(0, round(moment * 1000)):013d}" for moment in (newest_attempt, ended, published))
    return f"{attempts:09d}-{moments}-{digest}"


def is_held(held: str | None, offered: str) -> bool:
    """Says whether a warehouse that holds a version needs no other: it has this content, or that of a later moment.

    Example:
        >>> is_held("000000500-1763712000500-1763712001000-1763712002000-9f03",
        ...         "000000499-1763712000400-1763712003000-1763712004000-11aa")
        True
    """
    if held is None:
        return False
    return is_same(held, offered) or _progress(held) > _progress(offered)


def is_same(held: str, offered: str) -> bool:
    """Says whether two versions are of the same content."""
    return _digest(held) == _digest(offered)


def _digest(version: str) -> str:
    return version.rpartition("-")[2]


def _progress(version: str) -> list[str]:
    return version.split("-")[:_PROGRESS_FIELDS]
