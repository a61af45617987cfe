"""Changes a place of the library at a time, and counts how many of these mutants the tests notice.

    python tests/mutation/mutants.py map before.json        # which tests reach which mutant: runs all tests once
    python tests/mutation/mutants.py run before.json        # runs those tests for each mutant; names the survivors
    python tests/mutation/mutants.py map after.json --like before.json

Work happens in clones of this checkout. A mutant is found again after other changes: by its file, function, kind and text.
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
from pathlib import Path
from queue import SimpleQueue
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = ("flows", "tasks", "blocks", "nightjar")
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
SWAPPED = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of the source: the bytes from ``start`` to ``end`` become ``text``."""

    path: str
    line: int
    key: str
    start: int
    end: int
    text: str
    note_at: int
    """Where a line that notes the test can stand: the start of the line of the statement around it."""

    @property
    def room(self) -> str:
        parts = Path(self.path).parts
        return parts[1] if parts[0] == "nightjar" and len(parts) > 2 else parts[0]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.key.split(' | ', 1)[1]}"


class Finder(ast.NodeVisitor):
    """Finds the mutants of one file, in the bodies of its functions."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.mutants = path, source, []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._functions, self._statement, self._seen = [], None, Counter()

    def find(self) -> list[Mutant]:
        self.visit(ast.parse(self.source))
        return self.mutants

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _add(self, node: ast.AST, kind: str, text: str, start: int | None = None, end: int | None = None) -> None:
        if not self._functions or self._statement is None:
            return
        first, last = self._span(node)
        start, end = first if start is None else start, last if end is None else end
        around = " ".join(self.source[first:last].decode().split())[:80]
        what = f"{self.path} | {'.'.join(self._functions)} | {kind} | {around}"
        self._seen[what] += 1
        key = f"{what} | {self._seen[what]}"
        note_at = self._starts[self._statement.lineno - 1]
        self.mutants.append(Mutant(self.path, node.lineno, key, start, end, text, note_at))

    def _swap(self, node: ast.AST, operator: ast.AST, left: ast.AST, right: ast.AST) -> None:
        if (pair := SWAPPED.get(type(operator))) is None:
            return
        start, end = self._span(left)[1], self._span(right)[0]
        between = self.source[start:end].decode()
        pattern = r"\s+".join(map(re.escape, pair[0].split()))
        if found := re.search(pattern, between):
            offset = len(between[: found.start()].encode())
            self._add(node, f"{pair[0]} becomes {pair[1]}", pair[1], start + offset, start + offset + len(found[0]))

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            line = self.source[self._starts[node.lineno - 1] : self._span(node)[0]]
            if not line.strip() and not self.source[self._span(node)[0] :].startswith((b"elif", b"case")):
                self._statement = node
        before = self._statement
        for child in ast.iter_child_nodes(node):
            self.visit(child)
            self._statement = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._functions.append(node.name)
        before, self._statement = self._statement, None
        for child in node.body:
            self.visit(child)
        self._functions.pop()
        self._statement = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._functions.append(node.name)
        for child in node.body:
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.visit(child)
        self._functions.pop()

    def visit_JoinedStr(self, _: ast.JoinedStr) -> None:
        """Leaves f-strings alone: Python 3.11 does not know where their parts are."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value and self._functions:
            self._statement = node
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._swap(node, node.ops[0], node.left, node.comparators[0])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not any(isinstance(side, ast.Constant | ast.JoinedStr) and isinstance(getattr(side, "value", ""), str)
                   for side in (node.left, node.right)):  # fmt: skip
            self._swap(node, node.op, node.left, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._swap(node, node.op, node.values[0], node.values[1])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._span(node.operand)
            self._add(node, "not is removed", f"({self.source[start:end].decode()})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, f"becomes {not node.value}", str(not node.value))
        elif isinstance(node.value, int | float):
            self._add(node, f"becomes {node.value + 1}", str(node.value + 1))

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        start, end = self._span(node.test)
        before = self._statement
        if not self.source[self._span(node)[0] :].startswith(b"elif"):
            self._statement = node
        self._add(node.test, "the condition is negated", f"(not ({self.source[start:end].decode()}))")
        self._statement = before
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        before, self._statement = self._statement, self._own_line(node)
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._add(node, "returns None", "return None")
        self._statement = before
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        before, self._statement = self._statement, self._own_line(node)
        if isinstance(node.value, ast.Call | ast.Await):
            self._add(node, "the call is removed", "pass")
        self._statement = before
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        before, self._statement = self._statement, self._own_line(node)
        self._add(node, "the error is not raised", "pass")
        self._statement = before
        self.generic_visit(node)

    def _own_line(self, node: ast.stmt) -> ast.stmt | None:
        start = self._span(node)[0]
        alone = not self.source[self._starts[node.lineno - 1] : start].strip()
        return node if alone else self._statement


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
        _, output = pytest(copy, "--durations=0", "--junitxml=junit.xml", *arguments)
        print(output[-3000:], file=sys.stderr)
        seconds = test_seconds(copy / "junit.xml")
        reached = defaultdict(set)
        for line in (copy / "reached.txt").read_text("utf-8").splitlines():
            number, test = line.split("\t", 1)
            reached[int(number)].add(test)
    quickest_first = {
        mutant.key: sorted(filter(None, reached[number]), key=lambda test: (seconds.get(test_name(test), 1.0), test))
        for number, mutant in enumerate(mutants)
    }
    return {"seconds": seconds, "tests": quickest_first}


def test_name(test: str) -> str:
    """Returns the name that JUnit's file has for a test."""
    path, _, rest = test.partition("::")
    classes, _, name = rest.partition("[")[0].rpartition("::")
    case = rest.partition("[")[1] + rest.partition("[")[2]
    return "::".join(filter(None, [path.removesuffix(".py").replace("/", "."), classes, name])) + case


def test_seconds(junit: Path) -> dict[str, float]:
    seconds = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        module, _, classes = re.match(r"((?:[a-z_0-9]+\.)*[a-z_0-9]+)(\.?)(.*)", case.get("classname")).groups()
        name = "::".join(filter(None, [module, classes.replace(".", "::"), case.get("name")]))
        seconds[name] = float(case.get("time"))
    return seconds


def killer(mutant: Mutant, tests: list[str], seconds: dict[str, float], copy: Path) -> str | None:
    """Returns the test that notices a mutant, "a time limit" if one hangs, or None."""
    chosen, total = [], 0.0
    for test in tests:
        total += seconds.get(test_name(test), 1.0)
        if chosen and total > MOST_SECONDS_OF_TESTS:
            break
        chosen.append(test)
    if not chosen:
        return None
    path = copy / mutant.path
    source = path.read_bytes()
    path.write_bytes(source[: mutant.start] + mutant.text.encode() + source[mutant.end :])
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
