"""Reports of bundles, comparisons and gates under the names of NeMo Evaluator."""
