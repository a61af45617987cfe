"""JsonLines: an append-only file that survives crashes and full disks."""

import json
import logging
import resource
from contextlib import ExitStack, closing, contextmanager

import pytest

from nightjar.core.files import replace_file
from nightjar.engine.runs import RunDirectory
from nightjar.engine.runs.jsonl import JsonLines, Place, scan_lines
from nightjar.errors import RunDirectoryError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f.jsonl"


@pytest.fixture
def opened():
    with ExitStack() as ending:
        yield lambda path: ending.enter_context(closing(JsonLines(path)))


@contextmanager
def full_at(size):
    """Makes the operating system refuse writes past a size, as a full disk does; also those to a log of the tests."""
    saved = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, saved[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, saved)


def test_each_appended_object_is_a_line_whose_place_is_returned(path, opened):
    path.write_text('{"z":0}\n')
    file = opened(path)
    places = [*file.append([{"a": 1}, {"b": "ü\n"}]), *file.append([{"c": 3}]), *file.append([])]
    assert places == [Place(8, 8), Place(16, 13), Place(29, 8)]
    assert [file.read_row(place) for place in places] == [{"a": 1}, {"b": "ü\n"}, {"c": 3}]
    file.sync()
    assert file.size == path.stat().st_size == 37
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()][1:3] == [{"a": 1}, {"b": "ü\n"}]


def test_a_value_that_json_cannot_hold_is_written_as_text(path, opened):
    values = {
        "number as key": ({1: "a"}, {"1": "a"}), "huge": (1 << 70, str(1 << 70)), "negative": (-1 << 70, str(-1 << 70)),
        "surrogate": ("half \ud800 character", "half ? character"), "nested": ([(1, {2: 3})], [[1, {"2": 3}]]),
        "not a number": ({1: float("nan")}, {"1": None}), "object": ({1}, "{1}"),
    }  # fmt: skip
    places = opened(path).append([{"value": value, "kind": kind} for kind, (value, _) in values.items()])
    found = list(scan_lines(path))
    assert [line.place for line in found] == places
    assert {line.row["kind"]: line.row["value"] for line in found} == {kind: read for kind, (_, read) in values.items()}


def test_checksums_are_those_of_each_line_also_of_earlier_ones(path):
    path.write_bytes(b'{"a":1}\n')
    with closing(JsonLines(path, is_guarded=True)) as file:
        file.append([{"b": 2}, {"b": 2}])
    expected = ["e3858ae8f6a919f3", "2ec96a08d5c0b01d", "2ec96a08d5c0b01d"]  # of b2sum -l 64
    assert path.with_suffix(".checksums").read_text().splitlines() == expected


def test_a_line_that_a_full_disk_refuses_leaves_nothing_and_a_shorter_one_can_be_written(path):
    with closing(JsonLines(path, is_guarded=True)) as file:
        file.append([{"a": 1}])
        with full_at(40):
            with pytest.raises(RunDirectoryError, match=r"f\.jsonl': File too large"):
                file.append([{"text": "x" * 100}])
            assert path.read_bytes() == b'{"a":1}\n'
            assert file.append([{"b": 2}]) == [Place(8, 8)]
    assert path.read_bytes() == b'{"a":1}\n{"b":2}\n'
    assert path.with_suffix(".checksums").read_text().splitlines() == ["e3858ae8f6a919f3", "2ec96a08d5c0b01d"]


def test_replacing_a_file_on_a_full_disk_keeps_the_old_content_and_leaves_nothing_behind(path):
    path.write_bytes(b"old\n")
    with full_at(10), pytest.raises(RunDirectoryError, match="File too large"):
        replace_file(path, [b"x" * 100])
    assert (path.read_bytes(), list(path.parent.iterdir())) == (b"old\n", [path])


@pytest.mark.parametrize("whole", [b'{"a":1}\n', b""], ids=["after a line", "alone"])
def test_a_torn_last_line_is_cut_off_with_a_warning(path, opened, caplog, whole):
    for torn in (b"", b"{", b'{"b": 2}', b"\x00\x00", b"x" * 200_000):
        caplog.clear()
        path.write_bytes(whole + torn)
        with caplog.at_level(logging.WARNING):
            assert opened(path).size == len(whole)
        assert path.read_bytes() == whole
        assert [f"{len(torn)} bytes" in record.getMessage() for record in caplog.records] == [True] * bool(torn)


def test_a_scan_yields_numbers_places_and_rows_but_no_torn_line_and_changes_nothing(path):
    assert list(scan_lines(path)) == []
    path.write_bytes(b'{"a":1}\n{"bb":2}\n')
    assert list(scan_lines(path)) == [(1, Place(0, 8), {"a": 1}), (2, Place(8, 9), {"bb": 2})]
    path.write_bytes(b'{"a":1}\n{"b"')
    assert [line.row for line in scan_lines(path)] == [{"a": 1}]
    assert path.read_bytes() == b'{"a":1}\n{"b"'


def test_the_error_of_a_scan_names_the_file_and_the_damaged_line(path):
    for damage in (b'{"b":', b"", b"[1]", b"\x00\x00\x00", b'"text"'):
        path.write_bytes(b'{"a":1}\n' + damage + b'\n{"c":3}\n')
        with pytest.raises(RunDirectoryError, match=r"f\.jsonl, line 2 "):
            list(scan_lines(path))


def test_what_two_readers_may_read_differently_is_damage(path):
    for text, fault in [
        ('{"reward":1.0,"reward":0.5}', "the name 'reward' occurs twice"),
        ('{"state":{"a":1,"b":[{"c":1,"c":1}]}}', "the name 'c' occurs twice"),
        ('{"state":' + "[" * 900 + "]" * 900 + "}", "the nesting is too deep"),
    ]:
        path.write_text(f'{{"fine": 1}}\n{text}\n')
        with pytest.raises(RunDirectoryError, match=f"line 2 is damaged: {fault}"):
            list(scan_lines(path))
        (path.parent / "metadata.json").write_text(text)
        with pytest.raises(RunDirectoryError, match=f"metadata.json is damaged: {fault}"):
            RunDirectory(path.parent).read_metadata()


def test_a_file_that_cannot_be_read_or_opened_is_an_error(tmp_path):
    with pytest.raises(RunDirectoryError, match="Is a directory"):
        list(scan_lines(tmp_path))
    with pytest.raises(RunDirectoryError, match=r"'.*missing/f\.jsonl': No such file or directory"):
        JsonLines(tmp_path / "missing" / "f.jsonl")


def test_replacing_a_file_replaces_all_of_it(path):
    path.write_bytes(b"a long old content\n")
    replace_file(path, [b"new\n", b"lines\n"])
    assert (path.read_bytes(), list(path.parent.iterdir())) == (b"new\nlines\n", [path])
