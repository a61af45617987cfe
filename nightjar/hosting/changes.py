"""``Change``: what is to be made or changed on a Prefect server, so that it can be shown before it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from prefect.client.orchestration import PrefectClient

Make: TypeAlias = Callable[[PrefectClient], Awaitable[object]]


@dataclass(frozen=True)
class Change:
    """A thing on the server, and what becomes of it.

    Attributes:
        what: its kind and name, such as ``deployment evaluate/evaluate``.
        kind: whether it is new, or differs, or stays as it is.
        make: does it; None where it stays.
        details: what differs, in words.
    """

    what: str
    kind: Literal["create", "change", "keep"]
    make: Make | None = None
    details: tuple[str, ...] = ()
