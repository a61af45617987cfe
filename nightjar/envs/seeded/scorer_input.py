"""``ScorerInput``: what a scorer looks at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ScorerInput:
    """An answer, and what belongs to it.

    Attributes:
        response: what the model said.
        target: the reference answer, as the row has it.
        metadata: the row.
        config: what the benchmark was declared with beside its own arguments.
        sandbox: where code may be run; None where there is none.
    """

    response: str
    target: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    sandbox: Any = None
