"""Source that is parsed in several threads at once, while memory is tidied up, is parsed whole in each."""

import ast
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nightjar.core.syntax import parse_expression, parse_python, read_literal


class LetsOthersRun:
    """Rubbish for the garbage collection that, as a database connection's may, lets another thread run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0.0001)


def test_threads_that_parse_at_once_do_not_disturb_each_other():
    source = Path(ast.__file__).read_bytes()
    statements = len(ast.parse(source).body)

    def parse(_: int) -> int:
        LetsOthersRun()
        return len(parse_python(source).body)

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(parse, range(100))) == {statements}


@pytest.mark.parametrize("parse", [parse_python, parse_expression, read_literal])
def test_what_is_not_python_is_said_to_be_not(parse):
    with pytest.raises(SyntaxError):
        parse("1 +")


def test_a_literal_is_never_run():
    with pytest.raises(ValueError, match="malformed"):
        read_literal("open('secret')")
