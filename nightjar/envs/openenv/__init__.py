"""Environments of OpenEnv projects."""
