"""The tools of the agent ``shell``: a shell, and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nightjar.environments.agents.trial import Trial
from nightjar.environments.tools.sandbox_env import check_text


class ShellTools:
    """Tools that work in the container of a trial. Commands have ``seconds``; outputs have at most ``max_bytes``."""

    def __init__(self, seconds: float, max_bytes: int) -> None:
        self._seconds = seconds
        self._max_bytes = max_bytes

    @property
    def all(self) -> list[Callable[..., Any]]:
        """The tools, in the order in which the model sees them."""
        return [self.bash, self.read_file, self.write_file, self.edit_file, self.submit]

    async def bash(self, command: str, trial: Trial) -> str:
        """Run a command in a shell that keeps its directory and variables. Returns the output and the exit code."""
        check_text("command", command)
        done = await trial.shell.run(command, self._seconds)
        trial.exit_code = done.exit_code
        said = done.output.rstrip("\n") or "(no output)"
        if done.is_timed_out:
            return f"{said}\n[killed after {self._seconds:g} s]"
        if done.has_ended:
            return f"{said}\n[the shell ended with exit code {done.exit_code}; the next command starts a new one]"
        return said if done.exit_code == 0 else f"{said}\n[exit code {done.exit_code}]"

    async def read_file(self, path: str, trial: Trial, first_line: int = 1, lines: int = 400) -> str:
        """Read a text file. Returns the given number of lines from first_line on."""
        check_text("path", path)
        content = (await trial.sandbox.download(path)).decode("utf-8", "replace").splitlines()
        shown = content[first_line - 1 : first_line - 1 + lines]
        text = "\n".join(shown)[: self._max_bytes]
        is_all = first_line == 1 and len(shown) == len(content) and len(text) < self._max_bytes
        return text if is_all else f"{text}\n[lines {first_line} to {first_line + len(shown) - 1} of {len(content)}]"

    async def write_file(self, path: str, content: str, trial: Trial) -> str:
        """Write a text file. Replaces the file if it exists, and makes its folders."""
        check_text("path", path)
        check_text("content", content)
        await trial.sandbox.upload(content.encode(), path)
        return f"Wrote {len(content.encode())} bytes to {path}"

    async def edit_file(self, path: str, old: str, new: str, trial: Trial) -> str:
        """Replace a text in a file. The text must occur exactly once."""
        for name, value in (("path", path), ("old", old), ("new", new)):
            check_text(name, value)
        content = (await trial.sandbox.download(path)).decode("utf-8", "surrogateescape")
        if (count := content.count(old)) != 1:
            raise ValueError(
                f"The text occurs {count} times in {path}, but must occur once. Include more of the lines around it"
            )
        await trial.sandbox.upload(content.replace(old, new).encode("utf-8", "surrogateescape"), path)
        return f"Edited {path}"

    async def submit(self, trial: Trial) -> str:
        """Say that the task is done. No tool can be called afterwards."""
        trial.is_submitted = True
        return "Submitted"
