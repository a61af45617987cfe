"""HTTP: ``nightjar view``, the web pages of a warehouse."""
