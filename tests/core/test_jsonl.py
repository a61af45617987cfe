"""JsonLines: an append-only file that survives crashes and full disks."""

import json
import logging
import resource
from contextlib import contextmanager

import pytest

from nightjar.core.files import replace_file
from nightjar.engine.runs.jsonl import JsonLines, Place, scan_lines
from nightjar.errors import RunDirectoryError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f.jsonl"


@pytest.fixture
def opened():
    """Opens files, and closes them in the end."""
    made = []

    def open_(path):
        made.append(JsonLines(path))
        return made[-1]

    yield open_
    for file in made:
        file.close()


@contextmanager
def full_at(size):
    """Makes the operating system refuse writes past a size, as a full disk does; also those to a log of the tests."""
    saved = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, saved[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, saved)


class TestAppend:
    def test_one_object_a_line(self, path, opened):
        opened(path).append([{"a": 1}, {"b": "ü\n"}])
        assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == [{"a": 1}, {"b": "ü\n"}]

    def test_places_say_where_the_lines_stand(self, path, opened):
        file = opened(path)
        places = [*file.append([{"a": 1}, {"b": "ü"}]), *file.append([{"c": 3}])]
        assert places == [Place(0, 8), Place(8, 11), Place(19, 8)]
        assert [file.read_row(place) for place in places] == [{"a": 1}, {"b": "ü"}, {"c": 3}]

    def test_places_count_on_in_a_file_that_was_there(self, path, opened):
        path.write_text('{"a":1}\n')
        assert opened(path).append([{"b": 2}]) == [Place(8, 8)]

    def test_size_is_the_file_s(self, path, opened):
        file = opened(path)
        file.append([{"a": 1}])
        file.sync()
        assert file.size == path.stat().st_size == 8

    def test_no_rows_write_nothing(self, path, opened):
        assert (opened(path).append([]), path.read_bytes()) == ([], b"")

    @pytest.mark.parametrize(
        ("value", "read"),
        [
            ({1: "a"}, {"1": "a"}),
            (1 << 70, str(1 << 70)),
            (-(1 << 70), str(-(1 << 70))),
            ("half \ud800 character", "half ? character"),
            ([(1, {2: 3})], [[1, {"2": 3}]]),
            ({1: float("nan")}, {"1": None}),
        ],
        ids=["number as key", "huge integer", "huge negative", "surrogate", "nested", "not a number"],
    )
    def test_what_json_cannot_hold_is_written_as_text(self, path, opened, value, read):
        [place] = opened(path).append([{"value": value, "other": 1}])
        [line] = scan_lines(path)
        assert (line.place, line.row) == (place, {"value": read, "other": 1})

    def test_an_object_is_written_as_its_text(self, path, opened):
        opened(path).append([{"value": {1}}])
        assert next(scan_lines(path)).row == {"value": "{1}"}


class TestFullDisk:
    def test_the_file_is_as_it_was_before(self, path, opened):
        file = opened(path)
        file.append([{"a": 1}])
        with full_at(20), pytest.raises(RunDirectoryError, match=r"Cannot write .*f\.jsonl': File too large"):
            file.append([{"text": "x" * 100}])
        assert path.read_bytes() == b'{"a":1}\n'

    def test_what_fits_can_be_written_afterwards(self, path, opened):
        file = opened(path)
        with full_at(20):
            with pytest.raises(RunDirectoryError):
                file.append([{"text": "x" * 100}])
            assert file.append([{"b": 2}]) == [Place(0, 8)]
        assert path.read_bytes() == b'{"b":2}\n'

    def test_replacing_keeps_the_old_content_and_leaves_nothing_behind(self, path):
        path.write_bytes(b"old\n")
        with full_at(10), pytest.raises(RunDirectoryError, match="File too large"):
            replace_file(path, [b"x" * 100])
        assert (path.read_bytes(), list(path.parent.iterdir())) == (b"old\n", [path])


class TestTornLastLine:
    @pytest.mark.parametrize(
        "torn", [b"{", b'{"b": 2}', b"\x00\x00", b"x" * 200_000], ids=["1", "whole", "zeros", "long"]
    )
    def test_is_cut_off_with_a_warning(self, path, opened, caplog, torn):
        path.write_bytes(b'{"a":1}\n' + torn)
        with caplog.at_level(logging.WARNING):
            opened(path)
        assert path.read_bytes() == b'{"a":1}\n'
        assert f"cut off an incomplete last line of {len(torn)} bytes" in caplog.text

    def test_alone_leaves_an_empty_file(self, path, opened):
        path.write_bytes(b'{"a"')
        assert (opened(path).size, path.read_bytes()) == (0, b"")

    def test_a_whole_file_is_left_alone_without_a_warning(self, path, opened, caplog):
        path.write_bytes(b'{"a":1}\n')
        opened(path)
        assert (path.read_bytes(), caplog.records) == (b'{"a":1}\n', [])

    def test_a_reader_does_not_see_it_and_changes_nothing(self, path):
        path.write_bytes(b'{"a":1}\n{"b"')
        assert [line.row for line in scan_lines(path)] == [{"a": 1}]
        assert path.read_bytes() == b'{"a":1}\n{"b"'


class TestScan:
    def test_numbers_places_and_rows(self, path):
        path.write_bytes(b'{"a":1}\n{"bb":2}\n')
        assert list(scan_lines(path)) == [(1, Place(0, 8), {"a": 1}), (2, Place(8, 9), {"bb": 2})]

    @pytest.mark.parametrize("damage", [b'{"b":', b"", b"[1]", b"\x00\x00\x00", b'"text"'], ids=repr)
    def test_damage_names_the_file_and_the_line(self, path, damage):
        path.write_bytes(b'{"a":1}\n' + damage + b'\n{"c":3}\n')
        with pytest.raises(RunDirectoryError, match=r"f\.jsonl, line 2 is damaged: "):
            list(scan_lines(path))

    def test_a_missing_file_has_no_lines(self, path):
        assert list(scan_lines(path)) == []

    def test_a_file_that_cannot_be_read(self, tmp_path):
        with pytest.raises(RunDirectoryError, match=r"Cannot read .*: Is a directory"):
            list(scan_lines(tmp_path))


def test_a_file_that_cannot_be_opened(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"Cannot write .*: No such file or directory"):
        JsonLines(tmp_path / "missing" / "f.jsonl")


def test_replacing_a_file_replaces_all_of_it(path):
    path.write_bytes(b"a long old content\n")
    replace_file(path, [b"new\n", b"lines\n"])
    assert (path.read_bytes(), list(path.parent.iterdir())) == (b"new\nlines\n", [path])
