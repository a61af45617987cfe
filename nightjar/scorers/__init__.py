"""Pure matchers: from what was said and what is right to whether they are the same."""

from nightjar.scorers.numbers import read_number, same_number, stated_number

__all__ = ["read_number", "same_number", "stated_number"]
