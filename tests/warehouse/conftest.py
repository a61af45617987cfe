"""What tests of the warehouse share: run directories as docs/reference/run-directory.md describes them."""

import asyncio
import json
import os
import re
import shutil
import socket
import threading
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import product

import pytest

from nightjar.core.process_ids import process_host
from nightjar.warehouse import Warehouse


@pytest.fixture(scope="session")
def write_run(run_writer):
    """Writes a run directory with two rollouts of each example; a rollout of an odd example is wrong."""

    def write(folder, run_id, *, examples=2, started_at="2026-01-01T00:00:00+00:00", attempt=1, **metadata):
        ended = datetime.fromisoformat(started_at) + timedelta(minutes=attempt)
        rows, attempts, usage = [], [], {"token_usage": {"input_tokens": 10, "output_tokens": 5}}
        for example, index in product(range(examples), range(2)):
            said = {
                "prompt": [{"role": "user", "content": f"Question {example}?"}], "answer": str(example),
                "completion": [{"role": "assistant", "content": f"Answer {index} of {run_id}"}],
                "info": {"level": example}, "metrics": {"correct": 1.0 - example % 2}, "model": "served", **usage,
            }  # fmt: skip
            rows.append(run_writer.rollout(example, index, 1.0 - example % 2, attempts=attempt, **said))
            for number in range(1, attempt + 1):
                row = run_writer.attempt(example, index, number, finished_at=ended.timestamp(), **usage)
                row["state"] |= {"completion": said["completion"], "trajectory": []}
                attempts.append(row)
        told = {
            "run_id": run_id, "status": "completed", "model": "openai/gpt", "num_examples": examples,
            "started_at": started_at, "finished_at": ended.isoformat(), "rollouts": len(rows), "scored": len(rows),
            "failed": 0, "coverage": 1.0, "avg_reward": sum(row["reward"] for row in rows) / len(rows),
            "published_at": ended.isoformat(), "dataset_fingerprint": None, "env_args": {},
        }  # fmt: skip
        run_dir = run_writer.write(folder / run_id, rows, attempts, **told | metadata)
        (run_dir / "config.json").write_text("{}")
        return run_dir

    return write


class Damage:
    """Damages files, as a broken disk or a careless copy would; segments are read-only."""

    def overwrite(self, path, change):
        path.chmod(0o644)
        path.write_bytes(change(path.read_bytes()))

    def truncate(self, path):
        self.overwrite(path, lambda content: content[: len(content) // 2])

    def flip(self, path, column):
        """Turns over the bits of a byte in the middle of a column's data."""
        import duckdb

        with duckdb.connect() as connection:
            sql = "SELECT data_page_offset, total_compressed_size FROM parquet_metadata(?) WHERE path_in_schema = ?"
            [(start, length)] = connection.execute(sql, [str(path), column]).fetchall()
        at = start + length // 2
        self.overwrite(path, lambda content: content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])

    def describe(self, path, **changes):
        """Changes the ``segment.json`` of a segment."""
        self.overwrite(path / "segment.json", lambda content: json.dumps(json.loads(content) | changes).encode())


@pytest.fixture(scope="session")
def damage():
    return Damage()


@pytest.fixture(scope="module")
def restored(tmp_path_factory):
    """Gives a module's tests one folder, which has the same content for each of them: it is prepared only once."""
    folder = tmp_path_factory.mktemp("restored")
    prepared = folder.with_name(f"{folder.name}-prepared")

    def restore(prepare):
        if not prepared.exists():
            prepare(folder)
            shutil.copytree(folder, prepared)
        folder.rename(tmp_path_factory.mktemp("used") / folder.name)
        return shutil.copytree(prepared, folder)

    return restore


@pytest.fixture(scope="session")
def browse():
    """Opens a client of a web view of a warehouse, to which the further arguments give access."""
    from fastapi.testclient import TestClient

    from nightjar.view.server import Access, create_app

    class Browser(TestClient):
        def words(self, address, status=200):
            """What a page says, without its tags and layout."""
            page = self.get(address)
            assert page.status_code == status, page.text
            return " ".join(re.sub(r"<[^>]*>", " ", page.text).split())

        def links(self, address, **asked):
            """The addresses of the rows of a page's table."""
            page = self.get(address, params=asked or None)
            assert page.status_code == 200, page.text
            return re.findall(r'<a data-row href="([^"]+)"', page.text)

    def browse(warehouse, *access, base_url="http://localhost", **options):
        return Browser(create_app(warehouse, Access(*access)), base_url=base_url, **options)

    return browse


@pytest.fixture(scope="session")
def serve():
    """Serves a web view at an address of this machine while the context lasts. The arguments are those of its app."""
    import uvicorn

    from nightjar.view.server import create_app

    @contextmanager
    def serve(warehouse, access, *more):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = uvicorn.Server(uvicorn.Config(create_app(warehouse, access, *more), log_level="critical"))
            thread = threading.Thread(target=server.run, args=([listening],))
            thread.start()
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            server.should_exit = True
            thread.join()

    return serve


@pytest.fixture
def live_view(tmp_path, monkeypatch, run_writer, browse):
    """Opens a view of an empty warehouse in a folder with a run in progress, whose files it reads at each request.

    The arguments are those of ``run_writer.write``; ``folder`` is the folder of the run.
    """
    monkeypatch.chdir(tmp_path)
    for name, seconds in (("live._UPDATE", 0.0), ("live._SEARCH", 0.0), ("live_run._PUBLISHING", 1800.0)):
        monkeypatch.setattr(f"nightjar.view.{name}_SECONDS", seconds)

    def open_view(rollouts, attempts=None, **metadata):
        view = browse(Warehouse(tmp_path / "warehouse"))
        view.folder = tmp_path / "outputs/evals/gsm8k--gpt/run"
        run_writer.write(view.folder, rollouts, attempts, run_id="run", status="running", **metadata)
        (view.folder / ".lock").write_text(f"process {os.getpid()} on {process_host()}")
        return view

    return open_view


@pytest.fixture(scope="session")
def launched():
    """A real browser and Playwright's event loop; skips the tests that use it where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra 'dev'")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    if (path := next(filter(None, map(shutil.which, names)), None)) is None:
        pytest.skip("needs Chromium or Chrome on the PATH")
    with playwright.sync_playwright() as running:
        browser, loop = running.chromium.launch(executable_path=path, args=["--no-sandbox"]), asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="module")
def chromium(launched):
    """The browser of the session. Its event loop runs only in modules with this fixture: others start their own."""
    browser, loop = launched
    asyncio._set_running_loop(loop)
    yield browser
    asyncio._set_running_loop(None)


@pytest.fixture
def page(chromium, address):
    """A page of the server at a module's ``address``.

    Its test fails if the browser reports an error, shows a dialog, or asks another host or for what is not there.
    """
    with closing(chromium.new_context(base_url=address)) as context:
        page, faults = context.new_page(), []
        page.set_default_timeout(120_000)
        page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: faults.append(asked.url) if is_foreign(asked.url) else None)
        page.on("requestfailed", lambda asked: faults.append(f"{asked.failure}: {asked.url}"))
        page.on("response", lambda given: faults.append(given.url) if is_missing(given) else None)
        yield page
        # what a page still asks for ends when it is left; a refusal is among the responses
        usual = ("net::ERR_ABORTED", "Failed to load resource")
        assert [each for each in faults if not each.startswith(usual)] == []


def is_foreign(url):
    own = ("http://127.0.0.1:", "file:", "data:,", "data:image/svg+xml,%3Csvg", "data:image/gif;base64,R0")
    return not url.startswith(own)


def is_missing(response):
    return response.status >= 400 and response.request.resource_type != "document"


@pytest.fixture
def nightjar():
    """Runs a command, and gives its exit code, stdout and stderr; an expected error is one line and exit code 1.

    ``lines`` and ``words`` are stdout without its layout, ``width`` is the length of its longest line.
    """
    from typer.testing import CliRunner

    from nightjar.cli.app import app
    from nightjar.errors import NightjarError

    class Ended:
        def __init__(self, *arguments):
            result = CliRunner().invoke(app, [str(argument) for argument in arguments])
            error = result.exception
            if error is not None and not isinstance(error, NightjarError | SystemExit):
                raise error
            self.code, self.out = result.exit_code, result.stdout
            self.err = result.stderr + (f"Error: {error}" if isinstance(error, NightjarError) else "")
            self.json = json.loads(self.out) if "--json" in arguments and self.out else None
            self.lines = [" ".join(line.split()) for line in self.out.splitlines()]
            self.words = " ".join(self.out.split())
            self.width = max(map(len, self.out.splitlines()), default=0)

    return Ended


@pytest.fixture
def terminal(tmp_path, monkeypatch):
    """An empty folder, a terminal of 80 columns, and no warehouse but ``outputs/warehouse``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NIGHTJAR_WAREHOUSE", raising=False)
    return tmp_path


@pytest.fixture
def house(tmp_path, run_writer):
    return House(tmp_path, run_writer)


@pytest.fixture(scope="module")
def shared_house(tmp_path_factory, run_writer):
    """A house whose runs the tests of a module share."""
    return House(tmp_path_factory.mktemp("shared"), run_writer)


class House:
    """A warehouse, and runs for it with rewards that a test names."""

    def __init__(self, folder, run_writer):
        self.folder, self.warehouse = folder, Warehouse(folder / "outputs/warehouse")
        self._writer, self._compared = run_writer, {}

    def write(self, run_id, groups, /, *, place=None, hashes="hash", infos=None, metrics=None, retried=(), **metadata):
        """Writes a run directory; a group is an example's reward, or those of its rollouts; None for a failed one.

        ``infos`` and ``metrics`` have a value per example, ``retried`` pairs of example and rollout.
        """
        rollouts = []
        for example, group in enumerate(groups):
            fields = {"example_hash": f"{hashes}-{example}", "info": infos[example] if infos else {}}
            fields |= {"metrics": metrics[example]} if metrics else {}
            for index, reward in enumerate(group if isinstance(group, list) else [group]):
                write = self._writer.failed if reward is None else self._writer.rollout
                attempts = {"attempts": 2} if (example, index) in retried else {}
                rewarded = [] if reward is None else [float(reward)]
                rollouts.append(write(example, index, *rewarded, **fields, **attempts))
        rewards = [rollout["reward"] for rollout in rollouts if rollout["reward"] is not None]
        told = {
            "run_id": run_id, "status": "completed", "rollouts": len(rollouts), "scored": len(rewards),
            "failed": len(rollouts) - len(rewards), "coverage": len(rewards) / len(rollouts) if rollouts else None,
            "avg_reward": sum(rewards) / len(rewards) if rewards else None, "stderr": 0.01,
            "num_examples": len(groups), "dataset_fingerprint": hashes,
        }  # fmt: skip
        return self._writer.write(place or self.folder / run_id, rollouts, **{**told, **metadata})

    def publish(self, run_id, groups, /, **content):
        self.warehouse.publish(self.write(run_id, groups, **content), tidies=False)
        return run_id

    def publish_rows(self, run_id, rollouts=None, attempts=None, /, *, place=None, config=None, **metadata):
        """Publishes a run of these rollouts, or of those of ``run_writer``, and returns its folder."""
        run_dir = self._writer.write(place or self.folder / run_id, rollouts, attempts, run_id=run_id, **metadata)
        if config:
            (run_dir / "config.json").write_text(json.dumps(config))
        self.warehouse.publish(run_dir, tidies=False)
        return run_dir

    def compare(self, before, after, /, **wanted):
        """Publishes two runs, and compares them."""
        from nightjar.analysis import compare_runs

        for run_id, groups in (("before", before), ("after", after)):
            if self._compared.get(run_id) != groups:
                self.publish(run_id, groups)
                self._compared[run_id] = groups
        return compare_runs("before", "after", warehouse=self.warehouse, **wanted)
