"""Environments whose model calls tools: functions, MCP servers, a shell or Python in a sandbox."""
