"""Serves benchmarks over HTTP."""
