"""Tasks of Inspect (``inspect_ai``) as environments; docs/harnesses.md says what is supported."""
