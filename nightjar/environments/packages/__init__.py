"""Finds, describes, creates and installs environment packages without running their code."""
