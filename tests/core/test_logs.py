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


class TestSetup:
    @pytest.mark.parametrize("level", ["INFO", "info", logging.INFO])
    def test_messages_of_the_level_are_printed(self, capsys, level):
        setup_logging(level)
        say(logging.DEBUG)
        say()
        lines = capsys.readouterr().err.splitlines()
        assert [line.split(" - ", 1)[1] for line in lines] == [
            "nightjar.rubrics - INFO - scored 3",
            "verifiers.rubrics - INFO - scored 3",
        ]

    def test_a_second_call_replaces_the_first_and_none_is_silence(self, capsys):
        setup_logging("DEBUG")
        setup_logging("WARNING", log_format="%(message)s!")
        say()
        say(logging.WARNING)
        assert capsys.readouterr().err == "scored 3!\n" * 2
        setup_logging(None)
        say(logging.CRITICAL)
        assert capsys.readouterr().err == ""

    def test_a_file_is_appended_to(self, tmp_path, capsys):
        path = tmp_path / "run.log"
        for _ in range(2):
            setup_logging("INFO", "%(message)s", log_file=path, file_logging=True, console_logging=False)
            say()
        assert (path.read_text(), capsys.readouterr().err) == ("scored 3\n" * 4, "")

    def test_json_has_a_line_per_record_also_of_other_loggers_and_of_invalid_unicode(self, capsys):
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

    @pytest.mark.parametrize(
        ("options", "message"), [({"level": "LOUD"}, "'LOUD'.*CRITICAL, "), ({"file_logging": True}, "log_file")]
    )
    def test_an_unknown_level_and_a_file_without_a_name_are_errors(self, options, message):
        with pytest.raises(ValueError, match=message):
            setup_logging(**options)


class TestLevels:
    @pytest.mark.parametrize("level", ["debug", logging.DEBUG])
    def test_a_level_is_set_for_a_block(self, level):
        setup_logging("ERROR")
        with pytest.raises(ValueError, match="LOUD"), log_level(level):
            setup_logging("LOUD")
        with log_level(level):
            assert [logging.getLogger(name).level for name in LOGGER_NAMES] == [logging.DEBUG] * 2
        assert [logging.getLogger(name).level for name in LOGGER_NAMES] == [logging.ERROR] * 2

    def test_verifiers_are_quiet_for_a_block(self, capsys):
        setup_logging("DEBUG", "%(levelname)s")
        with quiet_verifiers():
            say()
            say(logging.WARNING)
        assert capsys.readouterr().err == "WARNING\n" * 2
