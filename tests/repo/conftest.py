"""Runs the commands of documents as a reader does: in a folder of their own, with the programs of this installation."""

import json
import os
import re
import shutil
import subprocess
import sys
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
ALONE = ["bwrap", *["--dev-bind", "/", "/", "--proc", "/proc", "--unshare-net", "--unshare-pid", "--die-with-parent"]]


@pytest.fixture(scope="session")
def run_stories():
    """Runs commands in folders by name, with a loopback and processes of their own, which end with them.

    Returns a function that takes ``{name: (commands, folder)}``, and returns the exit code, stdout and stderr of each.
    """
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap, so that the ports of the documents are free")

    def run(stories):
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "NIGHTJAR_"))}
        theirs |= {"PATH": f"{Path(sys.executable).parent}:{theirs['PATH']}", "BROWSER": "true", "COLUMNS": "120"}
        scripts = {
            name: [SERVERS + re.sub(r"^(nightjar model-server.*)&$", r"\1", commands, flags=re.MULTILINE), str(folder)]
            for name, (commands, folder) in stories.items()
        }
        ended = subprocess.run(
            [*ALONE, sys.executable, Path(__file__).with_name("stories.py")],
            input=json.dumps(scripts), env=theirs, stdout=subprocess.PIPE, text=True, timeout=1200, check=True,
        )  # fmt: skip
        return json.loads(ended.stdout)

    return run
