"""The processes that compare answers: they start when needed, are replaced, and never outlive their program."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from waiting import until

from nightjar.environments.rubrics.math_processes import MathProcesses, Question
from nightjar.errors import InfraError

PROGRAM = """
import asyncio
from nightjar.environments.rubrics import MathRubric
from nightjar.core.rollout.state import State
async def main():
    rubric = MathRubric(timeout_seconds=SECONDS)
    columns = {"prompt": [], "answer": "2", "example_id": 0}
    states = [State(input=columns, completion=rf"\\boxed{{{sum}}}") for sum in SUMS]
    print("started", flush=True)
    await rubric.score_group(states)
    print([state["reward"] for state in states], flush=True)

asyncio.run(main())
"""  # no ``if __name__``: users write such scripts
ENDLESS = "(3000000)!"


def asked(response="1+1", answer="2", hard_seconds=60.0):
    return Question(response, answer, max_verify_chars=100, timeout_seconds=30, hard_seconds=hard_seconds)


@pytest.fixture
def processes():
    pool = MathProcesses()
    yield pool
    pool.kill()


def children(pid):
    return [c for c in psutil.Process(pid).children() if any("math_worker" in part for part in c.cmdline())]


def test_the_pool_grows_when_needed_up_to_the_limit_and_answers_each_its_own(processes):
    assert processes.pids == []
    assert processes.submit(asked()).result(120)[0] == 1.0
    assert len(processes.pids) == 1
    sums = [processes.submit(asked(f"{n}+1", str(n + 1 + n % 2)), max_workers=2) for n in range(40)]
    assert [future.result(120)[0] for future in sums] == [float(n % 2 == 0) for n in range(40)]
    assert len(processes.pids) == min(2, os.cpu_count())


def test_processes_that_do_not_end_are_killed_or_were_idle_are_replaced_and_cost_no_other_comparison(processes):
    futures = [processes.submit(asked(response), max_workers=1) for response in ("1+1", "2")]
    hanging = processes.submit(asked(ENDLESS, hard_seconds=0.5), max_workers=1)
    unwanted = processes.submit(asked(ENDLESS), max_workers=1)
    assert unwanted.cancel()
    after = processes.submit(asked(), max_workers=1)
    assert [future.result(120)[0] for future in futures] == [1.0, 1.0]
    assert hanging.result(120) == (0.0, 0.5)
    assert after.result(120)[0] == 1.0
    [pid] = processes.pids
    os.kill(pid, signal.SIGKILL)
    until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert processes.submit(asked()).result(120)[0] == 1.0
    assert pid not in processes.pids
    assert len(processes.pids) == 1
    processes.end_idle()
    until(lambda: not processes.pids)
    assert processes.submit(asked()).result(120)[0] == 1.0


def test_a_process_that_cannot_start_is_an_error_and_no_wrong_answer(processes, tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ImportError('it is broken')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InfraError, match=r"did not start: (exit status|ImportError: it is broken)"):
        processes.submit(asked()).result(120)


def start(sums, tmp_path, seconds=600):
    script = tmp_path / "program.py"
    script.write_text(f"SUMS, SECONDS = {sums!r}, {seconds}\n{PROGRAM}")
    return subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )


def test_a_script_is_not_run_again_by_its_processes_and_leaves_none(tmp_path):
    with start(["1+1", "1+2"], tmp_path) as program:
        out, err = program.communicate(timeout=120)
    assert (out, err, program.returncode) == ("started\n[1.0, 0.0]\n", "", 0)


@pytest.mark.slow
@pytest.mark.parametrize(("ended_by", "seconds"), [(signal.SIGINT, 600), (signal.SIGKILL, 8)])
def test_a_program_that_is_ended_does_not_wait_for_its_comparison_and_leaves_nothing(tmp_path, ended_by, seconds):
    """The process of one that is killed ends when its own time is up."""
    with start([ENDLESS], tmp_path, seconds) as program:
        until(lambda: children(program.pid))
        [busy] = children(program.pid)
        until(lambda: sum(busy.cpu_times()[:2]) > 3)
        os.killpg(program.pid, ended_by)
        program.communicate(timeout=120)  # the comparison would take minutes
    until(lambda: not busy.is_running())
