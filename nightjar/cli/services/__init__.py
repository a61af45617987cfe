"""Services: ``nightjar up``, ``down`` and ``model-server``."""
