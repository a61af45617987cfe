"""A resume does the remaining rollouts of the right run and nothing else, wherever its folder is.

One process writes a run directory at a time, and what changes results cannot be changed half-way.
"""

import json
import signal

import pytest
from waiting import until

from nightjar.model_server import Faults

SETTINGS = ("-n", 12, "-r", 2, "-c", 4, "-T", 0.5)


@pytest.fixture
def killed(nightjar, serve):
    """Starts a run of 24 rollouts, kills it when some are there, and returns the server."""
    server = serve(faults=Faults(latency_ms=100))
    command = nightjar.start_eval("arithmetic", *SETTINGS, server=server)
    command.wait_until(lambda: nightjar.runs and nightjar.run.count_lines("attempts.jsonl") >= 6)
    command.kill()
    until(lambda: not server.stats().in_flight)  # what it had sent before it died may be late
    return server


def _span_ms(attempts):
    moments = [attempt["finished_at"] for attempt in attempts]
    return 1000 * (max(moments) - min(moments))


def test_its_directory_alone_says_all_of_a_run_also_to_let_it_grow(nightjar, killed):
    run_id, before = nightjar.run.metadata["run_id"], nightjar.run.attempts
    printed = nightjar.json("eval", "run", "--resume", nightjar.run, "--direct")
    assert (printed["run_id"], printed["scored"], printed["sampling_args"]) == (run_id, 24, {"temperature": 0.5})
    assert killed.stats().received <= 24 + 4, "what was in flight at the kill is asked again"
    after = nightjar.run.attempts[len(before) :]
    assert nightjar.run.metadata["time_ms"] >= _span_ms(before) + _span_ms(after), "the time before a kill counts"
    assert nightjar.start("eval", "run", "--resume", nightjar.run, "-n", 15, "--direct").wait().code == 0
    assert (nightjar.run.metadata["scored"], nightjar.run.metadata["sampling_args"]) == (30, {"temperature": 0.5})


def test_a_folder_that_was_renamed_or_moved_is_the_same_run(nightjar, killed):
    run_id = nightjar.run.metadata["run_id"]
    for place in ("outputs/evals/arithmetic--local/renamed", "elsewhere/my-run"):
        target = nightjar.folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        nightjar.run.path.rename(target)
        assert nightjar.start("eval", "run", "--resume", place, "--direct").wait().code == 0
        assert json.loads((target / "metadata.json").read_bytes())["run_id"] == run_id
        assert nightjar.sql("SELECT run_id, scored FROM runs") == [(run_id, 24)]
        assert killed.stats().received <= 24 + 4
    assert nightjar.start("publish", place).wait().code == 0
    assert nightjar.sql("SELECT count(*) FROM rollouts") == [(24,)]


def test_a_finished_run_asks_nothing_and_stays_as_it_is(nightjar, serve):
    server = serve()
    flags = ("eval", "run", "arithmetic", *SETTINGS, "-m", "local", "-b", server.url)
    assert nightjar.start(*flags, "--direct").wait().code == 0
    before, content = nightjar.run.metadata, nightjar.run.content
    for words in (["eval", "run", "--resume", nightjar.run], [*flags, "--resume", nightjar.run], [*flags, "--resume"]):
        nightjar.start(*words, "--direct").wait().ok()
        assert server.stats().received == 24
        after = nightjar.run.metadata
        assert {name for name in before if before[name] != after[name]} <= {"published_at"}
        assert {name for name in content if content[name] != nightjar.run.content[name]} <= {"metadata.json"}
        assert nightjar.sql("SELECT count(*) FROM runs") == [(1,)]


def test_without_an_environment_there_must_be_a_directory(nightjar):
    for words in ((), ("--resume",)):
        ended = nightjar.start("eval", "run", *words, "--direct").wait()
        assert (ended.code, "'ENV'" in ended.errors[0]) == (2, True)
    assert "'nowhere'" in nightjar.start("eval", "run", "--resume", "nowhere", "--direct").wait().error


@pytest.mark.long
def test_the_second_writer_is_told_who_holds_the_run(nightjar, serve):
    server = serve(faults=Faults(latency_ms=20))
    settings = ("-n", 50, "-c", 4)
    first = nightjar.start_eval("arithmetic", *settings, server=server)
    first.wait_until(lambda: nightjar.runs and nightjar.run.attempts)
    first.send(signal.SIGSTOP)  # so that it does not end before the others start
    config = nightjar.run.content["config.json"]
    forms = (["--resume"], ["--resume", nightjar.run])
    others = [nightjar.start_eval("arithmetic", *settings, *form, server=server) for form in forms]
    for second in others:
        ended = second.wait()
        assert f"Run {nightjar.run.path.name!r} is being written by process {first.pid} on " in ended.only_line
    assert nightjar.run.content["config.json"] == config
    first.send(signal.SIGCONT)
    assert first.wait().code == 0
    assert server.stats().answered == 150
    assert nightjar.run.metadata["scored"] == 150


QUESTIONS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(10)]
OTHER = {"question": "What is 1 + 2?", "answer": "3"}
CHANGES = [
    ({"-T": 1.0}, "sampling_args: saved {'temperature': 0.7}, asked for {'temperature': 1.0}"),
    ({"--shuffle-seed": 1}, "shuffle_seed: saved None, asked for 1"),
    ({"-n": 2}, "num_examples: saved 3, asked for 2"),
    ({"-m": "other", "-r": 4}, "model: saved 'local', asked for 'other'; rollouts_per_example: saved 2, asked for 4"),
]


@pytest.mark.long
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
