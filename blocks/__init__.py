"""Prefect blocks. There are none yet: endpoints take their keys from environment variables."""
