"""Exports a stored run to other programs: Inspect, MLflow and Weights & Biases.

>>> from nightjar.evaluation.stored_runs import find_stored_run
>>> exported = export_to_mlflow(find_stored_run("0a1b2c"), "http://127.0.0.1:5000")          # doctest: +SKIP

MLflow and Weights & Biases are extras; their packages are imported when a run is exported.
"""

from nightjar.exporters.mlflow_run import export_to_mlflow
from nightjar.exporters.reading import read_run
from nightjar.exporters.wandb_run import export_to_wandb

__all__ = ["export_to_mlflow", "export_to_wandb", "read_run"]
