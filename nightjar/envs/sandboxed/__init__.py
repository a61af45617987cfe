"""Environments whose model works in a sandbox."""
