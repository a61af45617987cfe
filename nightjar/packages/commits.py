"""Which commit a file is of."""

from __future__ import annotations

import subprocess
from pathlib import Path

_TIMEOUT_SECONDS = 10.0


def source_commit(file: Path) -> str | None:
    """Returns the git commit that a file's tree is at, "-dirty" where it differs; None where the file is in no tree."""
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    return _git(file.parent, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and a file's name
            ["git", *arguments],  # noqa: S607 - the user's git
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
