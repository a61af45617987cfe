"""What a scorer looks at."""

from nightjar.envs.seeded.scorer_input import ScorerInput

__all__ = ["ScorerInput"]
