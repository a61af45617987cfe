"""What tests of the warehouse share: run directories as docs/run-directory.md describes them."""

import json
import shutil
from datetime import datetime, timedelta

import pytest


@pytest.fixture(scope="session")
def write_run():
    """Writes a run directory with two rollouts of each example; a rollout of an odd example is wrong."""

    def write(folder, run_id, *, examples=2, started_at="2026-01-01T00:00:00+00:00", attempt=1, **metadata):
        ended = datetime.fromisoformat(started_at) + timedelta(minutes=attempt)
        rows = [
            {
                "example_id": example,
                "rollout_index": index,
                "example_hash": f"hash-{example}",
                "prompt": [{"role": "user", "content": f"Question {example}?"}],
                "completion": [{"role": "assistant", "content": f"Answer {index} of {run_id}"}],
                "answer": str(example),
                "info": {"level": example},
                "reward": 1.0 - example % 2,
                "advantage": 0.0,
                "metrics": {"correct": 1.0 - example % 2},
                "error": None,
                "timing": {"generation_ms": 10.0, "scoring_ms": 1.0, "total_ms": 11.0},
                "is_completed": True,
                "is_truncated": False,
                "stop_condition": "done",
                "token_usage": {"input_tokens": 10, "output_tokens": 5},
                "attempts": attempt,
                "model": "served",
            }
            for example in range(examples)
            for index in range(2)
        ]
        attempts = [
            {
                "example_id": row["example_id"],
                "rollout_index": row["rollout_index"],
                "attempt": number,
                "finished_at": ended.timestamp(),
                "error": None,
                "generation_ms": 10.0,
                "token_usage": row["token_usage"],
                "state": {"completion": row["completion"], "trajectory": []},
            }
            for row in rows
            for number in range(1, attempt + 1)
        ]
        content = {
            "run_id": run_id,
            "status": "completed",
            "env_id": "gsm8k",
            "env_args": {},
            "model": "openai/gpt",
            "num_examples": examples,
            "rollouts_per_example": 2,
            "started_at": started_at,
            "finished_at": ended.isoformat(),
            "rollouts": len(rows),
            "scored": len(rows),
            "failed": 0,
            "coverage": 1.0,
            "avg_reward": sum(row["reward"] for row in rows) / len(rows),
            "pass_threshold": 0.5,
            "published_at": ended.isoformat(),
            **metadata,
        }
        run_dir = folder / run_id
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (run_dir / "attempts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in attempts))
        (run_dir / "metadata.json").write_text(json.dumps(content))
        (run_dir / "config.json").write_text("{}")
        return run_dir

    return write


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

    def browse(warehouse, *access, base_url="http://localhost", **options):
        return TestClient(create_app(warehouse, Access(*access)), base_url=base_url, **options)

    return browse


@pytest.fixture
def nightjar():
    """Runs a command, and gives its exit code, stdout and stderr; an expected error is one line and exit code 1."""
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

    return Ended
