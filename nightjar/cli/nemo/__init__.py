"""Commands of NeMo Evaluator: serve and validate benchmarks."""
