"""The client side of Prefect: which server, what is started on this machine, the deployments, and runs.

``server`` and ``supervisor`` do without importing Prefect, which takes 2.5 s; the other modules import it.
"""
