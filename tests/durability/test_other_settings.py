"""A run is resumed with its own settings: what changes results cannot be changed half-way."""

import json

import pytest

pytestmark = pytest.mark.long

QUESTIONS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(10)]
OTHER = {"question": "What is 1 + 2?", "answer": "3"}
CHANGES = [
    ({"-T": 1.0}, "sampling_args: saved {'temperature': 0.7}, asked for {'temperature': 1.0}"),
    ({"--shuffle-seed": 1}, "shuffle_seed: saved None, asked for 1"),
    ({"-n": 2}, "num_examples: saved 3, asked for 2"),
    ({"-m": "other", "-r": 4}, "model: saved 'local', asked for 'other'; rollouts_per_example: saved 2, asked for 4"),
]


def test_a_run_is_not_resumed_with_other_settings_but_may_grow_and_change_its_pace(nightjar, serve):
    server, dataset = serve(), nightjar.folder / "questions.jsonl"
    settings = {"-a": json.dumps({"dataset": str(dataset)}), "-n": 3, "-r": 2, "-T": 0.7}

    def write(rows):
        dataset.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")

    def evaluate(changed, *more, endpoint=server):
        flags = [part for pair in (settings | changed).items() for part in pair]
        return nightjar.eval("gsm8k", *flags, *more, server=endpoint)

    def refused(difference, changed, **options):
        line = evaluate(changed, "--resume", run, **options).only_line
        assert line.startswith(f"Error: Cannot resume {run}: ")
        assert difference in line
        assert run.content == before

    write(QUESTIONS)
    evaluate({}).ok()
    run, before = nightjar.run, nightjar.run.content
    for changed, difference in CHANGES:
        refused(difference, changed)
    refused("env_args: saved ", {"-a": json.dumps({"dataset": str(dataset), "system_prompt": None})})
    refused("base_url: saved ", {}, endpoint=serve())
    write([QUESTIONS[0], OTHER, *QUESTIONS[2:]])
    refused("dataset_fingerprint: saved ", {})
    assert server.stats().received == 6

    write([*QUESTIONS, OTHER])
    for number, resume in ((5, ["--resume"]), (-1, ["--resume", run])):
        evaluate({"-n": number}, *resume, "-c", 2, "--max-retries", 5).ok()
    assert server.stats().received == 22, "each question is asked twice, in whichever session"
    assert nightjar.sql("SELECT num_examples, scored FROM runs") == [(11, 22)]
