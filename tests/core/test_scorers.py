"""Scorers: numbers as people write them."""

from decimal import Decimal

import pytest

from nightjar.scorers import read_number


class TestReadNumber:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("42", "42"),
            ("1,234", "1234"),
            ("1,234,567.50", "1234567.5"),
            ("$5", "5"),
            ("$ 5", "5"),
            ("-$5", "-5"),
            ("-$ 5", "-5"),
            ("-7", "-7"),
            ("- 7 eggs", "7"),
            ("0.5", "0.5"),
            (".5", "0.5"),
            ("7.", "7"),
            ("25%", "25"),
            ("12 eggs", "12"),
            ("about 12 or 13", "12"),
            ("A: $1,234.00.", "1234"),
            ("18,", "18"),
            ("100000000000000000000000001", "100000000000000000000000001"),
        ],
    )
    def test_as_people_write_it(self, text, number):
        assert read_number(text) == Decimal(number)

    @pytest.mark.parametrize("text", ["", "none", "$", "-", "."])
    def test_no_number(self, text):
        assert read_number(text) is None
