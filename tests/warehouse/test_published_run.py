"""A published run agrees with its run directory, field by field: compared here by another program, in plain Python."""

import base64
import json
import math
from datetime import UTC, datetime
from random import Random

import pytest

from nightjar.clients import ClientConfig
from nightjar.environments import ToolEnv
from nightjar.environments.rubrics import Rubric
from nightjar.warehouse import Warehouse


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def moment(text):
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def as_text(value):
    """What a column of text has of a field that may be anything: text as it is, the rest as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def alike(expected, found):
    """Equality, with NaN equal to itself."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(alike(expected[key], found[key]) for key in expected)
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return expected == found


def expected_run(run_dir):
    metadata = json.loads((run_dir / "metadata.json").read_bytes())
    config = run_dir / "config.json"
    same = (
        *("run_id", "status", "suite", "tags", "env_id", "env_version", "env_args", "extra_env_kwargs", "model"),
        *("base_url", "sampling_args", "num_examples", "rollouts_per_example", "dataset_fingerprint", "time_ms"),
        *("rollouts", "scored", "failed", "truncated", "coverage", "avg_reward", "stderr", "avg_error"),
        *("avg_metrics", "pass_at_k", "pass_all_k", "pass_threshold", "errors", "stop_conditions", "served_models"),
        *("version_info", "flow_run_id"),
    )
    versions, usage = metadata.get("version_info") or {}, metadata.get("usage") or {}
    rewarded = [row for row in lines(run_dir / "results.jsonl") if row.get("reward") is not None]
    rewards = [row["reward"] for row in rewarded]
    return {name: metadata.get(name) for name in same} | {
        "started_at": moment(metadata.get("started_at")), "finished_at": moment(metadata.get("finished_at")),
        "env_commit": versions.get("env_commit"), "env_hash": versions.get("env_hash"),
        "scoring_hash": versions.get("scoring_hash"), "rescored_from": metadata.get("rescored_from"),
        "part_of": metadata.get("part_of"), "protocol": metadata.get("api_client_type"),
        "nightjar_version": versions.get("nightjar_version"), "nightjar_commit": versions.get("nightjar_commit"),
        "input_tokens": usage.get("input_tokens"), "output_tokens": usage.get("output_tokens"), "run_dir": str(run_dir),
        "cost": None, "reward_examples": len({row["example_id"] for row in rewarded}),
        "lowest_reward": min(rewards, default=None), "highest_reward": max(rewards, default=None),
        "metadata": {name: value for name, value in metadata.items() if name != "digest"},
        "config": json.loads(config.read_bytes()) if config.exists() else None,
    }  # fmt: skip


def of_calls(trajectory):
    """Why the last call of a model ended, and how long all of them took."""
    last = trajectory[-1] if trajectory else None
    steps = [step for step in trajectory or [] if isinstance(step, dict)]
    known = [step["latency_ms"] for step in steps if step.get("latency_ms") is not None]
    return {
        "finish_reason": (last.get("response") or {}).get("finish_reason") if isinstance(last, dict) else None,
        "model_ms": pytest.approx(sum(known)) if known else None,
        "cached_calls": trajectory and sum((step.get("response") or {}).get("is_cached") is True for step in steps),
    }


AS_THEY_ARE = (
    "example_id", "rollout_index", "example_hash", "reward", "advantage", "metrics", "stop_condition", "is_completed",
    "is_truncated", "attempts", "model", "prompt", "completion",
)  # fmt: skip


def outcome(row):
    """How a rollout ended, by the names in its error's chain, else by what stopped it."""
    if error := row["error"]:
        names = set(error["error_chain_repr"].split(" -> "))
        known = {
            "ContentFilteredError": "content_filtered",
            "EmptyModelResponseError": "empty",
            "TimeoutError": "timed_out",
        }
        return next((ended for name, ended in known.items() if name in names), "failed")
    return (
        "timed_out" if row["stop_condition"] == "timeout_reached" else "truncated" if row["is_truncated"] else "scored"
    )


def error_columns(error):
    names = {"error": "error", "error_chain": "error_chain_repr", "error_message": "message"}
    return {column: error.get(name) for column, name in {**names, "error_traceback": "traceback"}.items()}


def expected_rollouts(run_dir, state_columns):
    metadata = json.loads((run_dir / "metadata.json").read_bytes())
    trajectories = {}
    for attempt in lines(run_dir / "attempts.jsonl"):
        if attempt["error"] is None and attempt["state"].get("trajectory") is not None:
            key, number = (attempt["example_id"], attempt["rollout_index"]), attempt["attempt"]
            trajectories[key] = max(trajectories.get(key, (0, None)), (number, attempt["state"]["trajectory"]))
    latest = {(row["example_id"], row["rollout_index"]): row for row in lines(run_dir / "results.jsonl")}
    for key, row in latest.items():
        error, timing, usage = row["error"] or {}, row["timing"], row["token_usage"] or {}
        trajectory = trajectories.get(key, (0, None))[1]
        yield (
            key,
            {
                **{name: row[name] for name in AS_THEY_ARE}, **{name: row.get(name) for name in ("info", "tool_defs")},
                "run_id": metadata["run_id"],
                "correct": None if row["reward"] is None else row["reward"] >= metadata["pass_threshold"],
                **error_columns(error), "error_phase": error.get("phase"), "input_tokens": usage.get("input_tokens"),
                "output_tokens": usage.get("output_tokens"),
                **{name: timing[name] for name in ("generation_ms", "scoring_ms", "total_ms")},
                "task": as_text(row.get("task")), "answer": as_text(row.get("answer")), "trajectory": trajectory,
                **of_calls(trajectory), "outcome": outcome(row),
                "state": {name: row.get(name) for name in state_columns} if state_columns else None,
            },
        )  # fmt: skip


def expected_attempts(run_dir):
    metadata = json.loads((run_dir / "metadata.json").read_bytes())
    for row in lines(run_dir / "attempts.jsonl"):
        error, usage = row["error"] or {}, row["token_usage"] or {}
        yield (
            (row["example_id"], row["rollout_index"], row["attempt"]),
            {
                **{name: row[name] for name in ("example_id", "rollout_index", "attempt", "finished_at")},
                **error_columns(error), "run_id": metadata["run_id"], "generation_ms": row["generation_ms"],
                "input_tokens": usage.get("input_tokens"), "output_tokens": usage.get("output_tokens"),
            },
        )  # fmt: skip


def found(warehouse, relation, run_id, key):
    """The rows of a run as records by their key, with JSON parsed."""
    result = warehouse.query(f"FROM {relation} WHERE run_id = ?", [run_id])
    kinds = dict(zip(result.columns, result.types, strict=True))
    records = [
        {name: json.loads(it) if kinds[name] == "JSON" and it is not None else it for name, it in record.items()}
        for record in result.records()
    ]
    return [(tuple(record[name] for name in key), record) for record in records]


def check(warehouse, run_dir, state_columns=()):
    """Compares all of a run, in every column."""
    run_id = json.loads((run_dir / "metadata.json").read_bytes())["run_id"]
    [(_, run)] = found(warehouse, "runs", run_id, ())
    assert run.pop("version")
    published_at, expected = run.pop("published_at"), expected_run(run_dir)
    assert published_at == (moment(expected["metadata"].get("published_at")) or published_at)
    assert run == expected

    places = ("example_id", "rollout_index", "attempt")
    for relation, columns, expected in (
        ("rollouts", places[:2], dict(expected_rollouts(run_dir, state_columns))),
        ("attempts", places, dict(expected_attempts(run_dir))),
    ):
        records = found(warehouse, relation, run_id, columns)
        assert sorted(key for key, _ in records) == sorted(expected)
        for key, record in records:
            if relation == "attempts":
                ended = record.pop("finished_at").timestamp()
                assert ended == pytest.approx(expected[key].pop("finished_at"), abs=2e-6)
            assert record.keys() == expected[key].keys()
            differences = {name for name in record if not alike(expected[key][name], record[name])}
            assert not differences, {name: (expected[key][name], record[name]) for name in differences}

    hashes = {row["example_hash"] for row in lines(run_dir / "results.jsonl")}
    examples = warehouse.query("SELECT example_hash FROM examples").rows
    assert len(examples) == len(set(examples))
    assert hashes <= {example_hash for (example_hash,) in examples}


STATE_COLUMNS = ["turns", "huge", "text", "nested", 'the "plan"', "turns", "absent"]


@pytest.fixture
def odd_run(tmp_path, run_writer):
    """A run by hand, with all that is rare: failures of both phases, retries, several models, odd texts and numbers."""
    texts = ['"quoted" \\ back', "two\nlines\ttab\r", "ünïcödé 漢字 🌋", "\u0000nul\u2028"]
    texts += ["", "NULL", "null", "{}", "[1,"]
    call = {"name": "f", "arguments": '{"a": "\\u00e9"}'}
    odd_numbers = {"nan": math.nan, "up": math.inf, "down": -math.inf, "none": None}
    rollouts, attempts = [], []
    for example_id, text in enumerate(texts):
        for index in range(2):
            state = {"turns": index, "huge": 2**90 + index, "text": text, "nested": {text: [None, 1.5]}}
            state['the "plan"'] = {"it's": []}
            rollouts.append(
                run_writer.rollout(
                    example_id, index, 0.1 * example_id, prompt=[{"role": "user", "content": text}],
                    completion=[
                        {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "content": text, "tool_call_id": "1"},
                    ],
                    answer=text or 42, info={"level": text, "big": 2**70},
                    task={"name": text} if example_id % 2 else text,
                    metrics={"correct": 0.5, **odd_numbers, text: 1e300}, advantage=-0.25 if index else 0.25,
                    model=f"model-{index}",
                    tool_defs=[{"name": "f", "parameters": {"type": "object", "description": text}}],
                    is_truncated=bool(index),
                    token_usage={"input_tokens": 2**40, "output_tokens": 0, "final_input_tokens": 1} if index else None,
                    **state,
                )
            )  # fmt: skip
            began, told = 1.79e9 + example_id, {"trajectory": [text]}
            first = {"finished_at": began + 0.123456, "error": run_writer.failure, "token_usage": None}
            last = {"finished_at": began + 20, "error": run_writer.failure}  # the success before it stays
            for number, fields in enumerate((first, {"finished_at": began + 10, "state": told}, last), 1):
                attempts.append(run_writer.attempt(example_id, index, number, **fields))
    scoring = {**run_writer.failure, "phase": "scoring", "traceback": "Traceback …\n  File", "message": texts[2]}
    rollouts.append(run_writer.failed(len(texts), 0))
    rollouts.append(run_writer.failed(len(texts), 1, error=scoring, completion=[{"role": "assistant", "content": ""}]))
    content = {name: rollouts[0][name] for name in ("prompt", "answer", "info", "task", "tool_defs")}
    rollouts.append(run_writer.failed(0, 0, **content))
    attempts.append(run_writer.attempt(len(texts), 0, 1, error=run_writer.failure, generation_ms=0.0))
    run_dir = run_writer.write(
        tmp_path / "outputs" / "evals" / "gsm8k--m" / "odd", rollouts, attempts, run_id="odd", suite="nightly",
        tags=["a", "ü"], env_args={"split": "test", "seed": 2**63 - 1, "text": texts[2]},
        state_columns=[*STATE_COLUMNS, "answer"],
        avg_metrics={"correct": 0.5, texts[0]: None}, errors={"a -> b": 3}, flow_run_id="0b1c",
        published_at="2026-11-20T19:00:00.123456Z",
    )  # fmt: skip
    (run_dir / "config.json").write_text(json.dumps({"env_id": "gsm8k", "text": texts[2], "big": 2**63 - 1}))
    return run_dir


def test_a_published_run_agrees_with_its_directory_also_in_a_pack(odd_run, tmp_path, run_writer):
    from nightjar.warehouse.writing.packing import pack_everything

    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.publish(odd_run)
    check(warehouse, odd_run, STATE_COLUMNS)
    warehouse.publish(run_writer.write(tmp_path / "other", [], run_id="other"))
    assert pack_everything(warehouse._backend.store) == 1
    check(warehouse, odd_run, STATE_COLUMNS)


def weigh(thing: str) -> str:
    """Weighs a thing.

    Args:
        thing: what to weigh.
    """
    if thing == "nothing":
        raise ValueError("there is nothing to weigh: ⚖")
    return f"{len(thing)} kg"


class Asking:
    """Calls the tool for what the question names, then says what it answered."""

    def answer(self, messages):
        from nightjar.model_server import Answer, last_user_text, tool_call

        question = last_user_text(messages)
        if messages[-1]["role"] == "tool":
            return Answer(question=question, text=messages[-1]["content"])
        return Answer(question=question, text="", tool_calls=(tool_call("weigh", thing=question.split()[-1]),))


class Weighing(ToolEnv):
    """Fails at first, for two reasons; has a group reward and a metric that is no number."""

    is_broken = True

    async def setup_state(self, state):
        state["seen"] = {"größe": 2**40, "list": [1.5, None, "ü"]}
        if self.is_broken and state["example_id"] == 1:
            raise OSError("the disk, ü")


async def test_a_run_of_the_engine(tmp_path):
    from nightjar.model_server import ModelServer

    def right(completion, answer):
        if answer == "?":
            raise RuntimeError("cannot tell")
        return float(completion[-1]["content"] == answer)

    def ratio(completion, answer):
        return math.nan if answer == "0 kg" else 0.5

    def rank(completions):
        return [float(place) for place in range(len(completions))]

    dataset = [
        {"question": "How heavy is gold", "answer": "4 kg", "info": {"source": "ü"}},
        {"question": "How heavy is lead", "answer": "4 kg"},
        {"question": "How heavy is nothing", "answer": "0 kg", "task": "odd"},
        {"question": "How heavy is it", "answer": "?"},
    ]
    env = Weighing(tools=[weigh], dataset=dataset, rubric=Rubric(funcs=[right, ratio, rank], weights=[1.0, 0.0, 0.5]))
    run_dir = tmp_path / "run"
    warehouse = Warehouse(tmp_path / "warehouse")
    with ModelServer(Asking()) as server:
        how = {"results_path": run_dir, "state_columns": ["seen"], "rollouts_per_example": 2}
        endpoint = ClientConfig(api_base_url=server.base_url)
        await env.evaluate(endpoint, "m", **how)
        warehouse.publish(run_dir)
        check(warehouse, run_dir, ["seen"])
        env.is_broken = False
        await env.evaluate(endpoint, "m", **how)
    warehouse.publish(run_dir)
    check(warehouse, run_dir, ["seen"])
    assert warehouse.query("SELECT count(*), count(reward), max(attempts) FROM rollouts").rows == [(8, 4, 2)]
    assert warehouse.query("SELECT count(*), count(error) FROM attempts").rows == [(10, 2)]
    assert {phase for (phase,) in warehouse.query("SELECT phase FROM errors").rows} == {"scoring"}


def test_a_run_whose_every_line_is_long(tmp_path, write_run):
    run_dir = write_run(tmp_path, "long", examples=1000)
    path = run_dir / "results.jsonl"
    random = Random(0)
    with path.open("r+") as file:
        rows = [json.loads(line) for line in file]
        file.seek(0)
        for row in rows:
            image = base64.b64encode(random.randbytes(22_000)).decode()
            file.write(json.dumps({**row, "prompt": [{"role": "user", "content": image}]}) + "\n")
    assert Warehouse(tmp_path / "warehouse").publish(run_dir).is_new
