"""The shell of an agent: one process for all commands, with limits on time and output."""

import asyncio
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from waiting import until

from nightjar.environments.agents.shell import PersistentShell


@pytest.fixture
async def shell(plain_sandbox):
    shell = PersistentShell(plain_sandbox, max_output_bytes=300)
    yield shell
    await shell.close()


async def test_directory_and_variables_stay_until_the_shell_ends(shell, plain_sandbox):
    await shell.run("mkdir below; cd below; X='two  words'", 60)
    done = await shell.run('pwd; echo "$X"', 60)
    assert (done.output, done.exit_code) == (f"{plain_sandbox.workspace}/below\ntwo  words\n", 0)
    done = await shell.run("echo bye; exit 3", 60)
    assert (done.output, done.exit_code, done.has_ended) == ("bye\n", 3, True)
    assert (await shell.run("echo again", 60)).output == "again\n"


async def test_output_and_exit_code_are_those_of_the_command_and_a_long_output_is_cut_in_the_middle(shell):
    results = {
        "echo out; echo err >&2; false": ("out\nerr\n", 1),
        "printf 'no newline'": ("no newline", 0),
        "cat": ("", 0),
        'echo "it\'s"; # a comment': ("it's\n", 0),
        "for n in 1 2\ndo\n  echo $n\ndone": ("1\n2\n", 0),
        "": ("", 0),
    }
    done = {command: await shell.run(command, 60) for command in results}
    assert {command: (each.output, each.exit_code) for command, each in done.items()} == results
    assert {(each.is_timed_out, each.has_ended) for each in done.values()} == {(False, False)}
    done = await shell.run("printf 'start '; head -c 100000 /dev/zero | tr '\\0' x; printf ' end'", 60)
    start, notice, end = done.output.partition("\n[99710 bytes of output are left out]\n")
    assert (start[:9], notice > "", end[-7:]) == ("start xxx", True, "xxx end")
    assert (len(start + end), done.dropped) == (300, 100_010 - 300)


async def test_a_command_that_takes_too_long_ends_and_the_next_one_runs(shell):
    done = await shell.run("echo before; sleep 100", 0.5)
    assert (done.output, done.exit_code, done.is_timed_out) == ("before\n", None, True)
    assert (await shell.run("echo after", 60)).output == "after\n"


async def test_only_the_command_is_killed_where_the_sandbox_can_kill(shell, plain_sandbox):
    async def kill(words):
        """Kills processes as the script in a container does."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if words in "\n".join(f"{name}={value}" for name, value in process.environ().items()):
                    process.kill()

    plain_sandbox.kill = kill
    await shell.run("X=kept", 60)
    done = await shell.run("sleep 100", 0.5)
    assert (done.is_timed_out, done.has_ended) == (True, False)
    assert (await shell.run("echo $X", 60)).output == "kept\n"


async def test_a_cancelled_command_is_killed(shell, plain_sandbox):
    running = asyncio.create_task(shell.run("echo $$ > pid.new; mv pid.new pid; sleep 100", 90))
    pid_file = Path(plain_sandbox.workspace, "pid")
    await asyncio.to_thread(until, pid_file.exists)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not psutil.pid_exists(int(pid_file.read_text()))  # noqa: ASYNC240
