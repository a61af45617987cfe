"""The client side of Prefect: which server, up and down, its deployments, and runs on it."""
