"""Secrets of this process. They are set as environment variables during a run, and hidden in files, logs and errors."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, ClassVar, NamedTuple, TextIO, cast
from urllib.parse import quote

from nightjar.core.secret_signs import HIDDEN, credential_of, is_secret_variable, without_signs
from nightjar.errors import ConfigError, MissingKeyError, NightjarError, error_chain

DISTINCTIVE_LENGTH = 8
"""The minimum length of a value that is hidden. Shorter values may occur in any text by chance."""
SECRETS_LABEL = "nightjar/custom-secrets"
"""The label of a flow run that names its own block of secrets."""

REFERENCE = r"([A-Za-z]+ )?\$([A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})"
"""A reference to a secret: ``$NAME`` or ``${NAME}``, perhaps after a word such as ``Bearer``."""

_REFERENCE = re.compile(REFERENCE)
_NAMES_A_VARIABLE = re.compile(r"(?i)(_var|variable|_env|_key_name)s?$")
_FORMATTER = logging.Formatter()
_LONGEST_TEXT = 10_000


class _Known:
    """Known values, the longest first. Each tuple is replaced as a whole, so that reading threads need no lock."""

    texts: ClassVar[tuple[str, ...]] = ()
    encoded: ClassVar[tuple[bytes, ...]] = ()


class _Held(NamedTuple):
    value: str
    before: str | None
    runs: int


_held: dict[str, _Held] = {}
_lock = Lock()


def note_secrets(*values: str) -> None:
    """Hides these values from now on, also in JSON, in Python's notation, in URLs, and after ``Bearer``."""
    long = {part for value in values for part in (value, credential_of(value) or "") if len(part) >= DISTINCTIVE_LENGTH}
    new = {shape for value in long for shape in _shapes(value)}
    with _lock:
        if not new <= {*_Known.texts}:
            _Known.texts = tuple(sorted({*_Known.texts, *new}, key=len, reverse=True))
            _Known.encoded = tuple(text.encode(errors="replace") for text in _Known.texts)


def _shapes(value: str) -> Iterable[str]:
    in_json = (json.dumps(value, ensure_ascii=escaped)[1:-1] for escaped in (True, False))
    return value, *in_json, repr(f'"{value}')[2:-1], quote(value, "", errors="replace")


def note_named_secrets(arguments: object, name: str = "") -> None:
    """Notes the values of environment variables that arguments name, such as ``{"judge_api_key_var": "JUDGE_KEY"}``."""
    if isinstance(arguments, Mapping):
        for key, each in arguments.items():
            note_named_secrets(each, str(key))
    elif isinstance(arguments, list | tuple):
        for each in arguments:
            note_named_secrets(each, name)
    elif isinstance(arguments, str) and (_NAMES_A_VARIABLE.search(name) or is_secret_variable(arguments)):
        note_secrets(os.environ.get(arguments, ""))


def hide(text: str, shown: str = HIDDEN) -> str:
    """Hides known secrets, and values of environment variables that are named like secrets."""
    here = (os.environ.get(name, "") for name in os.environ if is_secret_variable(name))  # a thread may unset it
    for value in (*_Known.texts, *here):
        if len(value) >= DISTINCTIVE_LENGTH and value in text:
            text = text.replace(value, shown)
    return text


def hide_keys(text: str) -> str:
    """Does the same as ``hide``, and also hides text that looks like a secret."""
    return without_signs(hide(text))


def error_text(error: BaseException) -> str:
    """Returns an error's message without secrets, at most 10,000 characters, or the error's class without a message."""
    text = hide_keys(_message(error))  # before it is cut, because the rest of a secret would not be found
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"


def _message(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - user code may raise what cannot be shown
        return type(error).__name__


def hide_bytes(content: bytes) -> bytes:
    for value in _Known.encoded:
        if value in content:
            content = content.replace(value, HIDDEN.encode())
    return content


def rewrite_error(error: Exception, change: Callable[[str], str]) -> None:
    """Changes all texts that an error and its causes hold."""
    for cause in error_chain(error):
        cause.args = tuple(change(part) if isinstance(part, str) else part for part in cause.args)
        vars(cause).update({name: change(text) for name, text in vars(cause).items() if isinstance(text, str)})


@contextmanager
def hidden_in_errors() -> Iterator[None]:
    """Removes secrets from errors that leave the block and from the causes of these errors.

    If that is impossible, replaces the errors by ``NightjarError``.
    """
    try:
        yield
    except Exception as error:
        rewrite_error(error, hide_keys)
        if (text := _message(error)) != (shown := hide_keys(text)):
            raise NightjarError(f"{type(error).__name__}: {shown}") from None
        raise


def hidden_in_log(record: logging.LogRecord) -> bool:
    """Removes secrets from a log record. This is a filter for handlers, and it passes every record."""
    message = record.getMessage()
    if (shown := hide_keys(message)) != message:
        record.msg, record.args = shown, None
    if record.exc_info:
        traceback = record.exc_text or _FORMATTER.formatException(record.exc_info)
        if (shown := hide_keys(traceback)) != traceback:
            record.exc_text, record.exc_info = shown, None
    return True


class _HidingStream:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(hide(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Hiding:
    blocks: ClassVar[int] = 0
    streams: ClassVar[dict[str, tuple[TextIO, TextIO]]] = {}


@contextmanager
def hidden_in_prints() -> Iterator[None]:
    """Removes secrets from text on this process's stdout and stderr during the block. Blocks may overlap."""
    with _lock:
        _Hiding.blocks += 1
        if _Hiding.blocks == 1:
            for name in ("stdout", "stderr"):
                if (stream := getattr(sys, name)) is not None:
                    hiding = cast("TextIO", _HidingStream(stream))
                    _Hiding.streams[name] = (stream, hiding)
                    setattr(sys, name, hiding)
    try:
        yield
    finally:
        with _lock:
            _Hiding.blocks -= 1
            if not _Hiding.blocks:
                for name, (stream, hiding) in _Hiding.streams.items():
                    if getattr(sys, name) is hiding:  # other code may have redirected it in the meantime
                        setattr(sys, name, stream)
                _Hiding.streams.clear()


def is_reference(value: object) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def resolve(values: Mapping[str, str]) -> dict[str, str]:
    """Replaces references to secrets by the values of the secrets. Other texts are unchanged.

    Raises ``MissingKeyError`` with all unset variables, and ``ConfigError`` for a value that no HTTP header can carry.
    """
    found = {name: _REFERENCE.fullmatch(text) for name, text in values.items() if isinstance(text, str)}
    variables = [_variable(reference) for reference in found.values() if reference]
    if missing := [variable for variable in variables if not os.environ.get(variable, "").strip()]:
        raise MissingKeyError(missing)
    return {name: _value_of(reference) if (reference := found.get(name)) else values[name] for name in values}


def _value_of(reference: re.Match[str]) -> str:
    variable = _variable(reference)
    value = os.environ[variable].strip()
    if not value.isprintable() or not value.isascii():
        raise ConfigError(f"Environment variable {variable!r} holds characters that no HTTP header can carry")
    note_secrets(value)
    return f"{reference[1] or ''}{value}"


def _variable(reference: re.Match[str]) -> str:
    return reference[2].strip("{}")


@contextmanager
def in_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables during the block. Raises ``ConfigError`` if an overlapping block has another value."""
    note_secrets(*values.values())
    taken: list[str] = []
    try:
        for name, value in values.items():
            _take(name, value)
            taken.append(name)
        with hidden_in_prints():
            yield
    finally:
        for name in taken:
            _give_back(name)


def _take(name: str, value: str) -> None:
    with _lock:
        held = _held.get(name) or _Held(value, os.environ.get(name), 0)
        if held.value != value:
            raise ConfigError(f"Another run of this process has another value of the variable {name!r}")
        _held[name] = held._replace(runs=held.runs + 1)
        os.environ[name] = value


def _give_back(name: str) -> None:
    with _lock:
        held = _held[name]
        if held.runs > 1:
            _held[name] = held._replace(runs=held.runs - 1)
            return
        del _held[name]
        if held.before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = held.before
