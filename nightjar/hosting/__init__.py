"""The client side of Prefect: servers, ``nightjar up``, deployments, and runs on a server."""
