"""Tests code that a model wrote, inside a sandbox. It is run as ``python -I -c`` with a task on standard input.

The tests run in this process. The code runs in another process, which only returns plain values. So code cannot pass by
ending its process, printing text or changing modules that the tests use. The verdict carries a secret that only this
process knows, and the kernel lets no other process read the memory of this process. Only the standard library is used,
because Nightjar is not installed in the sandbox.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import ctypes
import io
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

_PR_SET_DUMPABLE = 4
_PLAIN = (bool, type(None))
_BASES: dict[type, Any] = {int: int.__pos__, str: str.__str__}
_SCALARS: dict[type, Any] = {
    float: float.__repr__,
    complex: complex.__repr__,
    bytes: bytes.hex,
    Decimal: Decimal.__str__,
    Fraction: Fraction.__str__,
}
_MANY: dict[type, Any] = {kind: kind.__iter__ for kind in (list, tuple, set, frozenset)}
_MAKERS: dict[str, Any] = {kind.__name__: kind for kind in (*_SCALARS, *_MANY)} | {
    "bytes": bytes.fromhex,
    "iterator": iter,
}


def encoded(value: Any) -> Any:
    """Returns a plain value in a form for JSON; subclasses become their base.

    Raises ``TypeError`` for any other value.
    """
    kinds = type(value).__mro__
    kind = next((each for each in kinds if each in {*_PLAIN, *_BASES, *_SCALARS, *_MANY, dict}), None)
    if kind in _PLAIN:
        return value
    if kind in _BASES:
        return _BASES[kind](value)
    if kind in _SCALARS:
        return {kind.__name__: _SCALARS[kind](value)}
    if kind in _MANY:
        return {kind.__name__: [encoded(item) for item in _MANY[kind](value)]}
    if kind is dict:
        return {"dict": [[encoded(key), encoded(item)] for key, item in dict.items(value)]}
    if isinstance(value, Iterator):
        return {"iterator": [encoded(item) for item in value]}
    raise TypeError(f"a value of type {type(value).__name__} cannot be passed on")


def decoded(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "dict":
        return {decoded(key): decoded(item) for key, item in content}
    maker = _MAKERS[kind]
    return maker([decoded(item) for item in content]) if isinstance(content, list) else maker(content)


def update(argument: Any, after: Any) -> None:
    """Applies the changes that a call made to its copy of a mutable argument."""
    if type(argument) is not type(after):
        return
    if isinstance(argument, list):
        argument[:] = after
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(after)


def programs(prompt: str, code: str, entry_point: str) -> list[str]:
    """Returns the sources that may define the function: prompt and code, or the code as the body in the prompt."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        tree = ast.Module([], [])
    if any(getattr(node, "name", None) == entry_point for node in tree.body):
        return [prompt, code]
    for source in (f"{prompt}{code}", f"{prompt}\n{textwrap.indent(textwrap.dedent(code), '    ')}"):
        with contextlib.suppress(SyntaxError):
            compile(source, "answer", "exec", dont_inherit=True)
            return [source]
    return [f"{prompt}{code}"]


def defined(task: dict[str, str]) -> Any:
    names: dict[str, Any] = {"__name__": "answer"}
    for source in programs(task["prompt"], task["code"], task["entry_point"]):
        exec(compile(source, "answer", "exec", dont_inherit=True), names)  # noqa: S102 - inside a sandbox
    return names[task["entry_point"]]


def work() -> None:
    answers, requests = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silent, number)
    task = json.loads(requests.readline())
    function: Any = None
    for line in requests:
        try:
            function = defined(task) if function is None else function
            call = json.loads(line)
            args, kwargs = decoded(call[0]), {key: decoded(value) for key, value in call[1].items()}
            reply = {"value": encoded(function(*args, **kwargs))}
            with contextlib.suppress(TypeError):
                reply["arguments"] = [encoded(value) for value in (*args, *kwargs.values())]
            text = json.dumps(reply)
        except BaseException as raised:  # noqa: BLE001 - sys.exit() included
            kinds = [kind.__name__ for kind in type(raised).__mro__ if kind.__module__ == "builtins"]
            text = json.dumps({"raised": kinds[0], "message": str(raised)[:500]})
        answers.write(f"{text}\n")
        answers.flush()


class Answer:
    def __init__(self, task: dict[str, str]) -> None:
        command = [sys.executable, "-I", "-c", task["source"], "work"]
        self.process: Any = subprocess.Popen(  # noqa: S603 - this program itself
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.send({name: task[name] for name in ("prompt", "code", "entry_point")})

    def send(self, content: Any) -> None:
        self.process.stdin.write(json.dumps(content) + "\n")
        self.process.stdin.flush()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.send([encoded(args), {key: encoded(value) for key, value in kwargs.items()}])
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the code has ended its process")
        reply = json.loads(line)
        if "value" in reply:
            for argument, after in zip((*args, *kwargs.values()), reply.get("arguments", ()), strict=False):
                update(argument, decoded(after))
            return decoded(reply["value"])
        kind = getattr(builtins, str(reply["raised"]), None)
        is_error = isinstance(kind, type) and issubclass(kind, Exception)
        raised: Any = kind if is_error else RuntimeError
        raise raised(reply["message"])


def test(task: dict[str, str]) -> str | None:
    names: dict[str, Any] = {"__name__": "tests"}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(task["prompt"], "prompt", "exec", dont_inherit=True), names)  # noqa: S102 - inside a sandbox
            exec(compile(task["test"], "tests", "exec", dont_inherit=True), names)  # noqa: S102
            names[task["entry_point"]] = answer = Answer(task)
            names["check"](answer)
    except Exception as error:  # noqa: BLE001 - tests may raise anything
        return f"{type(error).__name__}: {error}"[:500]
    return None


def main() -> None:
    if sys.argv[1:] == ["work"]:
        work()
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    task = json.loads(sys.stdin.readline())
    sys.stdin.close()
    error = test(task)
    sys.stdout.write(json.dumps({"secret": task["secret"], "passed": error is None, "error": error}) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
