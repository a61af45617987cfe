"""Environments whose model calls tools: Python functions."""
