"""Reading published runs: views over the segments, queries that only read, and the snapshot."""
