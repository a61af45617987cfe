"""Tasks of Inspect (``inspect_ai``) as environments; docs/guides/inspect-tasks.md says what is supported."""
