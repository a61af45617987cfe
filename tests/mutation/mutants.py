"""Changes a place of the library at a time, and counts how many of these mutants the tests notice.

    python tests/mutation/mutants.py map before.json        # which tests reach which mutant: runs all tests once
    python tests/mutation/mutants.py run before.json        # runs those tests for each mutant; names the survivors
    python tests/mutation/mutants.py map after.json --like before.json

Work happens in clones of this checkout. Mutants are known by file, function, kind and text, also after other changes.
"""

import argparse
import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = ("flows", "tasks", "blocks", "nightjar")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
FEWEST_PER_ROOM = 3
MOST_SECONDS_OF_TESTS = 150.0
SECONDS_TO_START = 120
NOTE = '__import__("nightjar._reached", fromlist=["note"]).note({number})'
REACHED = '''"""Notes which tests reach which mutants."""

import os
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "reached.txt"
noted = set()


def note(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if (number, test) not in noted:
        noted.add((number, test))
        try:
            file = os.open(FILE, os.O_APPEND | os.O_WRONLY | os.O_CREAT)
            os.write(file, f"{number}\\t{test}\\n".encode())
            os.close(file)
        except OSError:
            pass
'''
SECONDS = '''"""Notes how long each test takes that passes."""

import os
from pathlib import Path


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path("seconds.txt").open("a") as file:
            file.write(f"{report.nodeid}\\t{report.duration}\\n")
'''
SWAPPED = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip


class Span(NamedTuple):
    """The bytes from ``start`` to ``end`` of a file, and the text that replaces them."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Mutant:
    """One change of the source."""

    path: str
    line: int
    key: str
    change: Span
    note_at: int
    """The start of the line of the statement around it, before which another line can stand."""

    @property
    def room(self) -> str:
        parts = Path(self.path).parts
        return parts[1] if parts[0] == "nightjar" and len(parts) > 2 else parts[0]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.key.split(' | ', 1)[1]}"


class Finder:
    """Finds the mutants of one file, in the bodies of its functions."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.mutants, self._seen = path, source, [], Counter()
        self._lines = list(accumulate(map(len, source.splitlines(keepends=True)), initial=0))

    def find(self) -> list[Mutant]:
        self._walk(ast.parse(self.source), (), None)
        return self.mutants

    def _walk(self, node: ast.AST, names: tuple[str, ...], statement: ast.stmt | None) -> None:
        """Adds the mutants of a node and of those below; ``statement`` is the last one that starts a line."""
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            return  # Python 3.11 does not know where the parts of an f-string are
        children = ast.iter_child_nodes(node)
        if isinstance(node, FUNCTIONS | ast.ClassDef):
            names, statement, children = (*names, node.name), None, node.body
        elif isinstance(node, ast.AnnAssign):
            children = filter(None, [node.value])
        elif isinstance(node, ast.stmt) and self._starts_line(node):
            statement = node
        if statement is not None and names:
            for kind, start, end, text in self._changes(node):
                self._add(node, ".".join(names), kind, Span(start, end, text), self._lines[statement.lineno - 1])
        for child in children:
            inside_function = not isinstance(node, ast.ClassDef) or isinstance(child, FUNCTIONS | ast.ClassDef)
            if inside_function:
                self._walk(child, names, statement)

    def _starts_line(self, node: ast.stmt) -> bool:
        start, _ = self._span(node)
        is_first = not self.source[self._lines[node.lineno - 1] : start].strip()
        return is_first and not self.source[start:].startswith(b"elif")

    def _changes(self, node: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        """Yields what can be changed of a node: a name of the change, the bytes from and to, and the new text."""
        if operands := self._operands(node):
            yield from self._swap(*operands)
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield "not is removed", *self._span(node), f"({self._text(operand)})"
            case ast.Constant(value=bool(value)):
                yield f"becomes {not value}", *self._span(node), str(not value)
            case ast.Constant(value=int(value) | float(value)):
                yield f"becomes {value + 1}", *self._span(node), str(value + 1)
            case ast.If(test=test):
                yield "the condition is negated", *self._span(test), f"(not ({self._text(test)}))"
            case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
                yield "returns None", *self._span(node), "return None"
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield "the call is removed", *self._span(node), "pass"
            case ast.Raise():
                yield "the error is not raised", *self._span(node), "pass"

    def _operands(self, node: ast.AST) -> tuple[ast.AST, ast.AST, ast.AST] | None:
        """Returns an operator and what is left and right of it; None if the node has no operator to be changed."""
        match node:
            case ast.Compare(left=left, ops=[operator, *_], comparators=[right, *_]):
                return operator, left, right
            case ast.BoolOp(op=operator, values=[left, right, *_]):
                return operator, left, right
            case ast.BinOp(left=left, op=operator, right=right):
                is_text = any(isinstance(getattr(side, "value", None), str) for side in (left, right))
                return None if is_text else (operator, left, right)
        return None

    def _swap(self, operator: ast.AST, left: ast.AST, right: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        old, new = SWAPPED.get(type(operator), ("", ""))
        start, end = self._span(left)[1], self._span(right)[0]
        if old and (found := re.search(r"\s+".join(map(re.escape, old.split())).encode(), self.source[start:end])):
            yield f"{old} becomes {new}", start + found.start(), start + found.end(), new

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _add(self, node: ast.AST, function: str, kind: str, change: Span, note_at: int) -> None:
        shown = node.test if isinstance(node, ast.If) else node
        what = f"{self.path} | {function} | {kind} | {' '.join(self._text(shown).split())[:80]}"
        self._seen[what] += 1
        key = f"{what} | {self._seen[what]}"
        self.mutants.append(Mutant(self.path, node.lineno, key, change, note_at))


def all_mutants(checkout: Path) -> Iterator[Mutant]:
    for room in ROOMS:
        for path in sorted((checkout / room).rglob("*.py")):
            if not any((checkout / room / part).is_symlink() for part in path.relative_to(checkout / room).parts[:1]):
                yield from Finder(str(path.relative_to(checkout)), path.read_bytes()).find()


def choose(checkout: Path, count: int) -> list[Mutant]:
    """Returns mutants of all rooms, in proportion to their sizes; the hashes of their keys decide which."""
    rooms = defaultdict(list)
    for mutant in all_mutants(checkout):
        rooms[mutant.room].append(mutant)
    total = sum(map(len, rooms.values()))
    shares = {room: max(FEWEST_PER_ROOM, round(count * len(found) / total)) for room, found in rooms.items()}
    while sum(shares.values()) > count:
        shares[max(shares, key=shares.get)] -= 1
    return [
        mutant
        for room, found in sorted(rooms.items())
        for mutant in sorted(found, key=lambda mutant: sha256(mutant.key.encode()).digest())[: shares[room]]
    ]


def find_again(checkout: Path, keys: list[str]) -> list[Mutant]:
    """Returns the mutants with these keys, and says which are not there any more."""
    found = {mutant.key: mutant for mutant in all_mutants(checkout)}
    for key in keys:
        if key not in found:
            print(f"not there any more: {key}", file=sys.stderr)
    return [found[key] for key in keys if key in found]


def clone(folder: Path) -> Path:
    """Clones this checkout with its uncommitted changes; what is beside it is beside the clone, too."""
    copy = folder / "checkout"
    subprocess.run(["git", "clone", "--quiet", "--shared", CHECKOUT, copy], check=True)
    changed = subprocess.run(
        ["git", "ls-files", "--modified", "--others", "--exclude-standard", "-z"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, changed):
        source, target = CHECKOUT / name, copy / name
        target.unlink(missing_ok=True)
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    if (shared := CHECKOUT.parent / "shared").is_dir():
        (folder / "shared").symlink_to(shared)
    return copy


def pytest(copy: Path, *arguments: str, timeout: float | None = None) -> tuple[int | None, str]:
    """Runs tests of a clone; returns the exit code and the output, and no code if the time ran out."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPATH": str(copy / ".editable"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *arguments], cwd=copy, env=env, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, output


def map_tests(mutants: list[Mutant], arguments: list[str]) -> dict[str, dict]:
    """Returns the seconds of all tests, and those that reach each mutant, quickest first, by running all tests once."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = clone(Path(folder))
        (copy / "nightjar/_reached.py").write_text(REACHED)
        (copy / ".editable/seconds_of_tests.py").write_text(SECONDS)
        by_path = defaultdict(dict)
        for number, mutant in enumerate(mutants):
            by_path[mutant.path].setdefault(mutant.note_at, []).append(number)
        for path, places in by_path.items():
            source = (copy / path).read_bytes()
            for at, numbers in sorted(places.items(), reverse=True):
                line = source[at:].split(b"\n", 1)[0]
                indent = line[: len(line) - len(line.lstrip())]
                notes = b"".join(indent + NOTE.format(number=number).encode() + b"\n" for number in numbers)
                source = source[:at] + notes + source[at:]
            ast.parse(source)
            (copy / path).write_bytes(source)
        _, output = pytest(copy, "-p", "seconds_of_tests", *arguments)
        print(output[-3000:], file=sys.stderr)
        lines = (copy / "seconds.txt").read_text("utf-8").splitlines()
        seconds = {test: float(duration) for test, duration in (line.rsplit("\t", 1) for line in lines)}
        reached = defaultdict(set)
        for line in (copy / "reached.txt").read_text("utf-8").splitlines():
            number, test = line.split("\t", 1)
            reached[int(number)].add(test)
    tests = {
        mutant.key: sorted(reached[number] & seconds.keys(), key=lambda test: (seconds[test], test))
        for number, mutant in enumerate(mutants)
    }
    return {"seconds": seconds, "tests": tests}


def killer(mutant: Mutant, tests: list[str], seconds: dict[str, float], copy: Path) -> str | None:
    """Returns the test that notices a mutant, "a time limit" if one hangs, or None."""
    chosen, total = [], 0.0
    for test in tests:
        total += seconds[test]
        if chosen and total > MOST_SECONDS_OF_TESTS:
            break
        chosen.append(test)
    if not chosen:
        return None
    path = copy / mutant.path
    source = path.read_bytes()
    start, end, text = mutant.change
    path.write_bytes(source[:start] + text.encode() + source[end:])
    listed = copy / "tests.txt"
    listed.write_text("\n".join(chosen))
    try:
        code, output = pytest(copy, "-x", "-p", "no:cacheprovider", f"@{listed}", timeout=SECONDS_TO_START + 5 * total)
    finally:
        path.write_bytes(source)
    if code is None:
        return "a time limit"
    if code == 0:
        return None
    failed = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, flags=re.MULTILINE)
    return failed[0] if failed else f"exit code {code}"


def run(content: dict, file: Path, processes: int) -> None:
    mutants = find_again(CHECKOUT, list(content["tests"]))
    killers = content.setdefault("killers", {})
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = SimpleQueue()
        for number in range(processes):
            (Path(folder) / str(number)).mkdir()
            copies.put(clone(Path(folder) / str(number)))

        def one(mutant: Mutant) -> None:
            copy = copies.get()
            killers[mutant.key] = killer(mutant, content["tests"][mutant.key], content["seconds"], copy)
            copies.put(copy)
            print(f"{'killed  ' if killers[mutant.key] else 'SURVIVES'} {mutant}: {killers[mutant.key]}", flush=True)
            file.write_text(json.dumps(content, indent=1))

        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(one, [mutant for mutant in mutants if mutant.key not in killers]))
    report(mutants, content)


def report(mutants: list[Mutant], content: dict) -> None:
    rooms = defaultdict(list)
    for mutant in mutants:
        rooms[mutant.room].append(content["killers"].get(mutant.key))
    print(f"\n{'room':16}  mutants  killed")
    for room, killers in sorted(rooms.items()):
        print(f"{room:16}  {len(killers):7}  {sum(map(bool, killers)):6}")
    every = [killer for killers in rooms.values() for killer in killers]
    print(f"{'all':16}  {len(every):7}  {sum(map(bool, every)):6}\n")
    for mutant in mutants:
        if not content["killers"].get(mutant.key):
            how_many = len(content["tests"][mutant.key])
            print(f"survives {how_many} tests: {mutant}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["list", "map", "run"])
    parser.add_argument("file", type=Path, nargs="?", help="what is known of the mutants, as JSON")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--like", type=Path, help="take the mutants of this file")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--pytest", default="", help="arguments of pytest for 'map', in one word")
    given = parser.parse_args()
    if given.action == "run":
        return run(json.loads(given.file.read_text()), given.file, given.processes)
    like = given.like and list(json.loads(given.like.read_text())["tests"])
    mutants = find_again(CHECKOUT, like) if like else choose(CHECKOUT, given.count)
    if given.action == "list":
        print(*mutants, sep="\n")
        return None
    given.file.write_text(json.dumps(map_tests(mutants, given.pytest.split()), indent=1))
    return None


if __name__ == "__main__":
    main()
