"""What happens in a task's container between the end of the agent and the reward."""

import io
import subprocess
import tarfile
from pathlib import PurePosixPath

import pytest

from nightjar.environments.agents.artifacts import moved
from nightjar.environments.agents.harbor_task import read_task
from nightjar.environments.agents.live_events import LiveEvents
from nightjar.environments.agents.shell import PersistentShell
from nightjar.environments.agents.trial import DIFF, HealthcheckError, Trial, listening_ports
from nightjar.environments.agents.verification import run_script, verify
from nightjar.sandboxes.sandbox import CommandResult, Sandbox


def run(folder, *command):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=30).stdout


def test_the_diff_has_changed_and_new_files_of_a_repository_and_leaves_the_index_as_it_is(tmp_path):
    assert run(tmp_path, "sh", "-c", DIFF) == ""
    run(tmp_path, "git", "init", "--quiet")
    (tmp_path / "old").write_text("1\n")
    run(tmp_path, "git", "add", "old")
    run(tmp_path, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "first")
    (tmp_path / "old").write_text("2\n")
    (tmp_path / "new").write_text("3\n")
    before = run(tmp_path, "git", "status", "--porcelain")
    diff = run(tmp_path, "sh", "-c", DIFF)
    assert ("-1\n+2\n" in diff, "+++ b/new" in diff) == (True, True)
    assert run(tmp_path, "git", "status", "--porcelain") == before == " M old\n?? new\n"


def archive(*members):
    """Makes the tar archive that an engine returns: (name, type, link, content, mode) each."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as tar:
        for name, kind, link, content, mode in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size, member.mode, member.uid = kind, link, len(content), mode, 1000
            tar.addfile(member, io.BytesIO(content))
    return found.getvalue()


def test_artifacts_are_files_folders_and_links_that_stay_inside():
    def members(place, *excluded, work):
        content, is_folder = moved(work, PurePosixPath(place), excluded)
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            return {member.name: member for member in tar}, is_folder

    work = archive(
        ("app", tarfile.DIRTYPE, "", b"", 0o700),
        ("app/run.py", tarfile.REGTYPE, "", b"1", 0o4777),
        ("app/same.py", tarfile.LNKTYPE, "app/run.py", b"", 0o644),
        ("app/link", tarfile.SYMTYPE, "run.py", b"", 0o777),
        ("app/up", tarfile.SYMTYPE, "../tests", b"", 0o777),
        ("app/away", tarfile.SYMTYPE, "/tests", b"", 0o777),
        ("app/pipe", tarfile.FIFOTYPE, "", b"", 0o644),
        ("app/.git", tarfile.DIRTYPE, "", b"", 0o755),
        ("app/.git/HEAD", tarfile.REGTYPE, "", b"2", 0o644),
        ("app/src/old.pyc", tarfile.REGTYPE, "", b"3", 0o644),
        ("app/../../out", tarfile.REGTYPE, "", b"4", 0o644),
    )
    found, is_folder = members("/srv/app", work=work)
    ends = ["", "/run.py", "/same.py", "/link", "/.git", "/.git/HEAD", "/src/old.pyc"]
    assert (list(found), is_folder) == ([f"srv/app{end}" for end in ends], True)
    assert {member.uid for member in found.values()} == {0}
    assert found["srv/app/run.py"].mode == 0o755, "the setuid bit is dropped"
    assert found["srv/app/same.py"].isreg(), "a hard link becomes a file"
    for pattern in (".git", ".git/", ".gi?"):
        found, _ = members("/app", pattern, "*.pyc", work=work)
        assert list(found) == ["app", "app/run.py", "app/same.py", "app/link"]
    found, is_folder = members("/out/a.json", work=archive(("a.json", tarfile.REGTYPE, "", b"{}", 0o600)))
    assert (list(found), is_folder) == (["out/a.json"], False)


class RecordingSandbox(Sandbox):
    """Records the users and commands of a trial. Every command succeeds but ``failing``."""

    id = "recorded"

    def __init__(self, failing=None):
        self.user, self.failing, self.seen = None, failing, []

    async def exec(self, command, *_, **__):
        text = command if isinstance(command, str) else command[-1]
        self.seen.append((self.user, text))
        return CommandResult("", "no", int(text == self.failing))

    async def upload(self, content, path):
        self.seen.append((self.user, f"upload {path}"))

    async def download(self, path, max_bytes=0):
        if not path.endswith("reward.txt"):
            raise FileNotFoundError(path)
        return b"1"

    async def end_processes(self):
        self.seen.append((self.user, "END"))

    async def start(self): ...
    async def spawn(self, *_, **__): ...
    async def close(self): ...
    def close_now(self): ...


async def test_each_command_of_a_step_runs_in_turn_as_its_user_and_only_a_failed_healthcheck_is_an_error(tmp_path):
    steps = """
        agent.user = "agent"
        verifier.user = "checker"
        verifier.collect = [{command = "dump"}]
        environment.healthcheck.command = "healthy"
        steps = [{name = "one"}, {name = "two", healthcheck = {command = "ready", retries = 1}}]
    """
    files = {"task.toml": steps, "steps/two/workdir/setup.sh": "echo"}
    files |= {f"steps/{step}/{file}": "echo" for step in ("one", "two") for file in ("instruction.md", "tests/test.sh")}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    expected = [
        (None, "healthy"),
        ("agent", DIFF),
        (None, "dump"),
        (None, "END"),
        ("checker", "/tests/test.sh"),
        ("agent", "./setup.sh"),
        ("agent", "ready"),
    ]
    for failing in ("", "dump", "ready"):
        sandbox = RecordingSandbox(failing)
        shell = PersistentShell(sandbox, 1000)
        trial = Trial(read_task(tmp_path), sandbox, shell, None, LiveEvents(None, "0"), None, "0")
        await trial.begin_step()
        if failing == "ready":
            with pytest.raises(HealthcheckError, match="two' is not healthy after 1 tries: no"):
                await trial.next_step()
            continue
        assert await trial.next_step()
        assert [seen for seen in sandbox.seen if seen[1] in dict(map(reversed, expected))] == expected
        assert trial.rewards == [{"reward": 1.0}]


def test_the_ports_of_servers_are_read_from_the_table_of_the_kernel():
    table = """
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 2
   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:0 0 0
"""
    assert listening_ports(table) == [80, 8080]
    assert listening_ports("") == []


async def test_the_first_line_of_a_script_names_the_interpreter(plain_sandbox, tmp_path):
    printed = {
        "#!/bin/sh -e\nfalse\necho after": "",
        "#!/bin/sh\nfalse\necho after": "after\n",
        "#!/usr/bin/env python3\nprint('python')": "python\n",
        "#! /nowhere/bash\necho other": "other\n",
        "echo none": "none\n",
        "": "",
    }
    path, found = tmp_path / "a script.sh", {}
    for script in printed:
        path.write_text(script)
        done = await run_script(plain_sandbox, str(path), {}, 60)
        found[script] = done.stdout + done.stderr
    assert found == printed


async def test_named_rewards_are_read(monkeypatch):
    named = {b'{"reward": true, "style": false}': {"reward": 1.0, "style": 0.0}, b'{"a": 0.25}': {"a": 0.25}}
    for content, rewards in named.items():

        async def download(self, path, max_bytes=0, content=content):
            return content

        monkeypatch.setattr(RecordingSandbox, "download", download)
        assert (await verify(RecordingSandbox(), "task", [], {}, 1)).rewards == rewards
