"""Environments with a world: gymnasium, TextArena, reasoning-gym, OpenEnv."""
