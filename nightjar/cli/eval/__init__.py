"""``nightjar eval``: run evaluations."""
