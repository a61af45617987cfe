"""Benchmarks with NeMo Evaluator's interface: ``seed(idx)`` asks, ``verify(response, expected)`` scores.

``bridge`` turns a benchmark into an environment; ``lookup`` does the reverse.
"""
