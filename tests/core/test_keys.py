"""ensure_keys: environment variables that a program needs."""

import pytest

from nightjar.clients.credentials import ensure_keys
from nightjar.errors import MissingKeyError


def test_all_that_are_missing_are_named(monkeypatch):
    monkeypatch.setenv("SET_KEY", "secret")
    monkeypatch.setenv("EMPTY_KEY", "")
    monkeypatch.delenv("UNSET_KEY", raising=False)
    ensure_keys(["SET_KEY"])
    with pytest.raises(ValueError, match="'EMPTY_KEY', 'UNSET_KEY' not set") as raised:
        ensure_keys(["EMPTY_KEY", "SET_KEY", "UNSET_KEY"])
    assert isinstance(raised.value, MissingKeyError)
    assert raised.value.keys == ["EMPTY_KEY", "UNSET_KEY"]
