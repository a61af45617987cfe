"""Interfaces of other programs: verifiers and NeMo Evaluator."""
