"""Logging: levels, formats and places."""

import json
import logging

import pytest

from nightjar.core.logs import LOGGER_NAMES, log_level, quiet_verifiers, setup_logging


@pytest.fixture(autouse=True)
def _restored():
    loggers = [logging.getLogger(name) for name in (*LOGGER_NAMES, None)]
    before = [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    yield
    for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
        logger.level, logger.propagate = level, propagate
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
        logger.handlers[:] = handlers
    logging.getLogger().setLevel(loggers[-1].level)


def say(level=logging.INFO):
    for name in LOGGER_NAMES:
        logging.getLogger(f"{name}.rubrics").log(level, "scored %d", 3)


def test_messages_of_the_level_are_printed(capsys):
    for level in ("INFO", "info", logging.INFO):
        setup_logging(level)
        say(logging.DEBUG)
        say()
        lines = [line.split(" - ", 1)[1] for line in capsys.readouterr().err.splitlines()]
        assert lines == ["nightjar.rubrics - INFO - scored 3", "verifiers.rubrics - INFO - scored 3"]


def test_a_second_setup_replaces_the_first_and_none_is_silence(capsys):
    setup_logging("DEBUG")
    setup_logging("WARNING", log_format="%(message)s!")
    say()
    say(logging.WARNING)
    assert capsys.readouterr().err == "scored 3!\n" * 2
    setup_logging(None)
    say(logging.CRITICAL)
    assert capsys.readouterr().err == ""


def test_a_log_file_is_appended_to(tmp_path, capsys):
    path = tmp_path / "run.log"
    for _ in range(2):
        setup_logging("INFO", "%(message)s", log_file=path, file_logging=True, console_logging=False)
        say()
    assert (path.read_text(), capsys.readouterr().err) == ("scored 3\n" * 4, "")


def test_json_logging_has_a_line_per_record_also_of_other_loggers_and_of_invalid_unicode(capsys):
    for _ in range(2):
        setup_logging("INFO", json_logging=True)
    say()
    try:
        float("no number")
    except ValueError:
        logging.getLogger("my_environment").exception("failed")
    logging.getLogger("nightjar").info("caf\udce9")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["name"], line["level"], line["message"]) for line in lines] == [
        ("nightjar.rubrics", "INFO", "scored 3"), ("verifiers.rubrics", "INFO", "scored 3"),
        ("my_environment", "ERROR", "failed"), ("nightjar", "INFO", "caf\udce9"),
    ]  # fmt: skip
    assert lines[2]["exception"].endswith("ValueError: could not convert string to float: 'no number'")


def test_an_unknown_level_and_a_file_without_a_name_are_errors():
    for options, message in (({"level": "LOUD"}, "'LOUD'.*CRITICAL, "), ({"file_logging": True}, "log_file")):
        with pytest.raises(ValueError, match=message):
            setup_logging(**options)


@pytest.mark.parametrize("level", ["debug", logging.DEBUG])
def test_a_log_level_is_set_for_a_block(level):
    setup_logging("ERROR")
    with pytest.raises(ValueError, match="LOUD"), log_level(level):
        setup_logging("LOUD")
    with log_level(level):
        assert [logging.getLogger(name).level for name in LOGGER_NAMES] == [logging.DEBUG] * 2
    assert [logging.getLogger(name).level for name in LOGGER_NAMES] == [logging.ERROR] * 2


def test_verifiers_are_quiet_for_a_block(capsys):
    setup_logging("DEBUG", "%(levelname)s")
    with quiet_verifiers():
        say()
        say(logging.WARNING)
    assert capsys.readouterr().err == "WARNING\n" * 2
