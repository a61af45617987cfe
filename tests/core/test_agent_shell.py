"""The shell of an agent: one process for all commands, with limits on time and output."""

import asyncio
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from nightjar.environments.agents.shell import PersistentShell


@pytest.fixture
async def shell(plain_sandbox):
    shell = PersistentShell(plain_sandbox, max_output_bytes=300)
    yield shell
    await shell.close()


async def test_directory_and_variables_stay(shell, plain_sandbox):
    await shell.run("mkdir below; cd below; X='two  words'", 5)
    done = await shell.run('pwd; echo "$X"', 5)
    assert (done.output, done.exit_code) == (f"{plain_sandbox.workspace}/below\ntwo  words\n", 0)


@pytest.mark.parametrize(
    ("command", "output", "exit_code"),
    [
        ("echo out; echo err >&2; false", "out\nerr\n", 1),
        ("printf 'no newline'", "no newline", 0),
        ("cat", "", 0),
        ('echo "it\'s"; # a comment', "it's\n", 0),
        ("for n in 1 2\ndo\n  echo $n\ndone", "1\n2\n", 0),
        ("", "", 0),
    ],
    ids=["both streams", "no newline", "no input", "quotes", "several lines", "nothing"],
)
async def test_output_and_exit_code_are_those_of_the_command(shell, command, output, exit_code):
    done = await shell.run(command, 5)
    assert (done.output, done.exit_code, done.is_timed_out, done.has_ended) == (output, exit_code, False, False)


async def test_a_long_output_is_cut_in_the_middle(shell):
    done = await shell.run("printf 'start '; head -c 100000 /dev/zero | tr '\\0' x; printf ' end'", 10)
    assert done.output.startswith("start xxx")
    assert done.output.endswith("xxx end")
    notice = f"\n[{done.dropped} bytes of output are left out]\n"
    assert notice in done.output
    assert len(done.output) - len(notice) == 300
    assert done.dropped == 100_010 - 300


async def test_a_command_that_takes_too_long_ends_and_the_next_one_runs(shell):
    done = await shell.run("echo before; sleep 100", 0.5)
    assert (done.output, done.exit_code, done.is_timed_out) == ("before\n", None, True)
    assert (await shell.run("echo after", 5)).output == "after\n"


async def test_only_the_command_is_killed_where_the_sandbox_can_kill(shell, plain_sandbox):
    async def kill(words):
        """Kills processes as the script in a container does."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if words in "\n".join(f"{name}={value}" for name, value in process.environ().items()):
                    process.kill()

    plain_sandbox.kill = kill
    await shell.run("X=kept", 5)
    done = await shell.run("sleep 100", 0.5)
    assert (done.is_timed_out, done.has_ended) == (True, False)
    assert (await shell.run("echo $X", 5)).output == "kept\n"


async def test_a_new_shell_starts_after_the_end_of_the_first(shell):
    done = await shell.run("echo bye; exit 3", 5)
    assert (done.output, done.exit_code, done.has_ended) == ("bye\n", 3, True)
    assert (await shell.run("echo again", 5)).output == "again\n"


async def test_a_cancelled_command_is_killed(shell, plain_sandbox):
    running = asyncio.create_task(shell.run("echo $$ > pid; sleep 100", 50))
    pid_file = Path(plain_sandbox.workspace, "pid")
    async with asyncio.timeout(60):
        while not (pid_file.exists() and pid_file.read_text()):  # noqa: ASYNC110, ASYNC240 - another process writes it
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not psutil.pid_exists(int(pid_file.read_text()))  # noqa: ASYNC240
