"""Environments that are games: gymnasium, TextArena, reasoning-gym."""
