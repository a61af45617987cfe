"""What every part of Nightjar uses: messages, rollouts, calls of user code, secrets, logs, paths."""
