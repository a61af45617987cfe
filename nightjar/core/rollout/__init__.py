"""A rollout: its state, its steps, its time and tokens, and its record as a row."""
