"""Reads NeMo Evaluator's YAML configs as suites. Every key either has its effect, or is refused by name."""
