"""Storage of segments: the segments, the catalog of current segments, and the folder or object store."""
