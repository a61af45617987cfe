"""Where segments are stored: segments, the catalog of those that count, and the folder or object store."""
