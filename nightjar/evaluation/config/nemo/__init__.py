"""NeMo Evaluator's YAML configs as suites. Every key is either honoured, or refused by name."""

from nightjar.evaluation.config.nemo.file import ENDINGS, NemoConfigFile

__all__ = ["ENDINGS", "NemoConfigFile"]
