"""Reads NeMo Evaluator's YAML configs as suites. Every key either has its effect, or is refused by name."""

from nightjar.evaluation.config.nemo.file import ENDINGS, NemoConfigFile

__all__ = ["ENDINGS", "NemoConfigFile"]
