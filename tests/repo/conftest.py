"""Runs the commands of documents as a reader does: in a folder of their own, with the programs of this installation."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SERVERS = """
served=0
nightjar() {
    case $1 in
    model-server | view)
        local log="$1-$((++served)).log"
        command nightjar "$@" > "$log" &
        until grep -qs http: "$log"; do kill -0 $!; sleep 0.1; done
        curl -sSfo /dev/null "$(grep -o 'http:[^ ]*[0-9]' "$log" | head -1)/$([ "$1" = view ] || echo models)"
        ;;
    *) command nightjar "$@" ;;
    esac
}
"""
"""Lets the commands that serve until Ctrl-C run beside the others, and asks each for a page."""


@pytest.fixture(scope="session")
def run_commands() -> Callable[[str, Path], str]:
    """Runs commands with loopback and processes of their own, which end with them; returns stdout."""
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap, so that the ports of the documents are free")

    def run(commands: str, folder: Path) -> str:
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "NIGHTJAR_"))}
        theirs["PATH"] = f"{Path(sys.executable).parent}:{theirs['PATH']}"
        theirs |= {"HOME": str(folder / "home"), "BROWSER": "true", "COLUMNS": "120"}
        alone = [
            "bwrap",
            "--dev-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--unshare-net",
            "--unshare-pid",
            "--die-with-parent",
        ]
        script = SERVERS + re.sub(r"^(nightjar model-server.*)&$", r"\1", commands, flags=re.MULTILINE)
        ended = subprocess.run(
            [*alone, "bash", "-euo", "pipefail", "-c", script],
            cwd=folder, env=theirs, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return run
