"""Prefect flows: the order of the tasks, nothing else."""
