"""Benchmarks with NeMo Evaluator's interface: ``seed(idx)`` asks, ``verify(response, expected)`` scores."""
