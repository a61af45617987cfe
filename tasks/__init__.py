"""Prefect tasks: each is one call into ``nightjar``."""
