"""Starts ``nightjar`` quickly: imports once what a command needs, and then forks a process for each command.

Each command is a process of its own, as one that a shell starts: alone in a session, with its own folder, environment
and output, ended and killed like any other. What it saves is 2 s of imports. ``conftest.py`` runs this file, writes a
request a line to its stdin, and reads a line of answer: ``{"start": …}`` is answered by a pid, ``{"poll": pid}`` by
null or the exit code, negative for a signal.
"""

import gc
import json
import os
import sys
from importlib import import_module

LARGE = ("nightjar.clients.openai_chat", "openai.types.chat", "rich.console", "typer")
"""Their objects are not looked through, and so not copied, by the garbage collection of each process."""

NEEDED = (
    "nightjar.benchmarks.arithmetic",
    "nightjar.cli.eval.run",
    "nightjar.cli.eval.running",
    "nightjar.evaluation.direct",
    "nightjar.warehouse.backend",
)


def serve():
    """Answers requests until stdin is closed; comes back in every process that was forked."""
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            answer = exit_code(request["poll"])
        elif not (answer := os.fork()):
            become(**request["start"])
            return
        print(json.dumps(answer), flush=True)
    os._exit(0)


def exit_code(pid):
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def become(arguments, folder, env, out, err):
    """Makes a forked process what one that was started anew would be."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["nightjar", *arguments]
    sys.path[0] = ""
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)


for name in LARGE:
    import_module(name)
gc.freeze()
for name in NEEDED:
    import_module(name)
serve()

from nightjar.cli import main  # noqa: E402

main()
