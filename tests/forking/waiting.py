"""Waiting for what other processes and threads do."""

import time

import psutil

PATIENCE_SECONDS = 120


def until(condition, seconds=PATIENCE_SECONDS, told=lambda: "it did not happen in time", pause_seconds=0.05):
    """Waits until a function returns something true, and returns that; ``told`` says what was there instead."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, told()
        time.sleep(pause_seconds)
    return found


def is_alive(pid):
    """Whether a process is there; it may go between two looks, and one that nobody waited for yet is over, too."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
