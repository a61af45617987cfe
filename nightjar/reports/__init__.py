"""Renders records as text, tables and pages for people."""
