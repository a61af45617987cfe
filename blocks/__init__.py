"""Prefect blocks: named settings that runs share, stored by Prefect's server with encrypted secrets.

Every server that Nightjar starts knows these blocks. To register them with another server::

    prefect block register -m nightjar.blocks
"""

from nightjar.blocks.destinations import HubPublisher, ResultsWarehouse
from nightjar.blocks.environment_secrets import EnvironmentSecrets
from nightjar.blocks.model_endpoint import ModelEndpoint

__all__ = ["EnvironmentSecrets", "HubPublisher", "ModelEndpoint", "ResultsWarehouse"]
