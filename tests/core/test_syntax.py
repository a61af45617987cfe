"""Source is parsed in several threads at once, also during garbage collection."""

import ast
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nightjar.core.syntax import parse_expression, parse_python, read_literal


class LetsOthersRun:
    """Garbage whose collection lets another thread run, as that of a database connection may."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0.0001)


@pytest.mark.long
@pytest.mark.slow
def test_concurrent_threads_parse_the_same_source():
    source = Path(ast.__file__).read_bytes()
    statements = len(ast.parse(source).body)

    def parse(_: int) -> int:
        LetsOthersRun()
        return len(parse_python(source).body)

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(parse, range(100))) == {statements}


def test_a_text_that_is_not_python_is_a_syntax_error_and_a_literal_never_executed():
    for parse in (parse_python, parse_expression, read_literal):
        with pytest.raises(SyntaxError):
            parse("1 +")
    with pytest.raises(ValueError, match="malformed"):
        read_literal("open('secret')")
