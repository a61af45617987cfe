"""How runs are asked for: views over the segments that count, queries that can do no harm, and the snapshot."""
