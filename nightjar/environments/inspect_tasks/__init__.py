"""Tasks of Inspect (``inspect_ai``) as environments; docs/guides/harnesses.md says what is supported."""
