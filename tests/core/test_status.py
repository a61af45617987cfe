"""``nightjar status`` after 'nightjar up' was killed; a server that has nothing stands for what it left behind."""

import asyncio
import os

import pytest

from nightjar.cli.app import app
from nightjar.hosting.state import ServicesState, write_state

pytestmark = pytest.mark.slow


@pytest.fixture
def api_url(canned):
    canned.choose = lambda path, body: canned.reply({} if body is None else [])
    return canned.url.replace("/v1", "/api")


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def left_behind(api_url):
    no_process = 2**22 + 1  # more than any process id
    services = {"Prefect's server": (os.getpid(), 0), "The worker": (no_process, 1)}
    state = {"folder": "/work", "work_pool": "mine", "services": services, "view_url": "http://127.0.0.1:9/"}
    write_state(ServicesState(api_url, **state))


async def test_what_was_left_behind_is_shown(api_url, capsys):
    left_behind(api_url)
    assert await asyncio.to_thread(app, args=["status"], standalone_mode=False) == 1
    assert capsys.readouterr().out.splitlines()[:6] == [
        f"Server:      {api_url.removesuffix('/api')} answers", "Web view:    http://127.0.0.1:9/",
        "Services:    'nightjar up' is not running: its next start replaces these",
        f"             Prefect's server: process {os.getpid()}",
        "             The worker: is not running, restarted 1 time", "Work pools:  mine, not found",
    ]  # fmt: skip


def test_a_server_that_is_gone_too_is_not(capsys):
    left_behind("http://127.0.0.1:9/api")
    assert app(args=["status"], standalone_mode=False) == 1
    assert capsys.readouterr().out == "Nothing is running. Start it with: nightjar up --detach\n"
