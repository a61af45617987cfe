"""Evaluates all cases once with Nightjar, in a process of its own, against a scripted model server."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def nightjar_outcomes(tmp_path_factory):
    from answers import ScriptedModel
    from side_by_side import evaluate

    from nightjar.model_server import ModelServer

    folder = tmp_path_factory.mktemp("nightjar")
    with ModelServer(ScriptedModel()) as server:
        evaluate(sys.executable, "nightjar", server.url, folder)
    return folder
