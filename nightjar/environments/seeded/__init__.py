"""Benchmarks with NeMo Evaluator's interface: ``seed(idx)`` returns a problem, ``verify`` scores an answer."""
