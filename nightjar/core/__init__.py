"""The basis of all parts of Nightjar: messages, rollouts, calls of user code, secrets, logs, paths."""
