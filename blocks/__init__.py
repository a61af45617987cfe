"""Prefect blocks: what runs share and name, kept by Prefect's server with its secrets encrypted.

An installed Nightjar registers them with every server that starts. For one that runs elsewhere::

    prefect block register -m blocks
"""

from blocks.environment_secrets import EnvironmentSecrets
from blocks.hub_publisher import HubPublisher
from blocks.model_endpoint import ModelEndpoint
from blocks.results_warehouse import ResultsWarehouse

__all__ = ["EnvironmentSecrets", "HubPublisher", "ModelEndpoint", "ResultsWarehouse"]
