"""A run is resumed with its own settings: what changes results cannot be changed half-way."""

import json

import pytest

QUESTIONS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(10)]


OTHER = {"question": "What is 1 + 2?", "answer": "3"}


@pytest.fixture
def settings(nightjar, write):
    write(QUESTIONS)
    dataset = nightjar.folder / "questions.jsonl"
    return {"-a": json.dumps({"dataset": str(dataset)}), "-n": 3, "-r": 2, "-T": 0.7}


@pytest.fixture
def write(nightjar):
    def write(rows):
        (nightjar.folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")

    return write


def flags(settings):
    return [part for pair in settings.items() for part in pair]


CHANGES = [
    ({"-T": 1.0}, "sampling_args: saved {'temperature': 0.7}, asked for {'temperature': 1.0}"),
    ({"--shuffle-seed": 1}, "shuffle_seed: saved None, asked for 1"),
    ({"-n": 2}, "num_examples: saved 3, asked for 2"),
    ({"-m": "other", "-r": 4}, "model: saved 'local', asked for 'other'; rollouts_per_example: saved 2, asked for 4"),
]


def test_a_run_is_not_resumed_with_other_settings(nightjar, serve, settings, write):
    server = serve()
    assert nightjar.eval("gsm8k", *flags(settings), server=server).code == 0
    run, before = nightjar.run, nightjar.run.content

    def refused(difference, changed, endpoint=server):
        ended = nightjar.eval("gsm8k", *flags(settings | changed), "--resume", run, server=endpoint)
        line = ended.only_line
        assert line.startswith(f"Error: Cannot resume {run}: ")
        assert difference in line
        assert run.content == before

    for changed, difference in CHANGES:
        refused(difference, changed)
    other_args = json.dumps(json.loads(settings["-a"]) | {"system_prompt": None})
    refused("env_args: saved ", {"-a": other_args})
    refused("base_url: saved ", {}, endpoint=serve())
    write([QUESTIONS[0], OTHER, *QUESTIONS[2:]])
    refused("dataset_fingerprint: saved ", {})
    assert server.stats().received == 6


def test_a_run_may_grow_and_change_its_pace(nightjar, serve, settings, write):
    server = serve()
    assert nightjar.eval("gsm8k", *flags(settings), server=server).code == 0
    write([*QUESTIONS, OTHER])
    for number, resume in ((5, ["--resume"]), (-1, ["--resume", nightjar.run])):
        typed = (*flags(settings | {"-n": number}), *resume, "-c", 2, "--max-retries", 5)
        assert nightjar.eval("gsm8k", *typed, server=server).code == 0
    assert server.stats().received == 22, "each question is asked twice, in whichever session"
    assert nightjar.sql("SELECT num_examples, scored FROM runs") == [(11, 22)]
