"""Benchmarks in the words of NeMo Evaluator: ``seed(idx)`` asks, ``verify(response, expected)`` scores.

``bridge`` makes an environment of one, which runs like any other; ``reverse`` goes the other way.
"""
