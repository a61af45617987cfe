"""Scorers: numbers as people write them."""

from decimal import Decimal

import pytest

from nightjar.environments.scorers.numbers import equated_number, last_number, read_number, stated_number


def test_a_number_is_read():
    numbers = [
        # as people write it
        ("42", "42"), ("1,234", "1234"), ("1,234,567.50", "1234567.5"), ("$5", "5"), ("$ 5", "5"), ("-$5", "-5"),
        ("-$ 5", "-5"), ("-7", "-7"), ("- 7 eggs", "7"), ("0.5", "0.5"), (".5", "0.5"), ("7.", "7"),
        ("25%", "25"), ("12 eggs", "12"), ("about 12 or 13", "12"), ("A: $1,234.00.", "1234"), ("18,", "18"),
        ("100000000000000000000000001", "100000000000000000000000001"),
        # set apart as any language does
        ("1 200", "1200"), ("1\u202f234\u202f567,8", "1234567.8"), ("1'200", "1200"), ("1’200.50", "1200.5"),
        ("1{,}200", "1200"), (r"1\,200", "1200"), (r"1,\!200", "1200"), ("12,34,567", "1234567"),
        ("1,20,000", "120000"), ("18,00 €", "18"), ("0,125", "0.125"), ("1.234,50", "1234.5"),
        ("1.234.567", "1234567"), ("1.234", "1.234"), ("3, 4", "3"),
        # digits and signs of any script
        ("−5", "-5"), ("–5", "-5"), ("１，２００．５", "1200.5"), ("১,২০০", "1200"), ("๑๒", "12"), ("౧౨", "12"),
        ("१२", "12"), ("١٬٢٠٠٫٥", "1200.5"), ("18²", "18"),
        # fractions and LaTeX
        (r"\frac{5}{2}", "2.5"), (r"-\dfrac{36}{2}", "-18"), (r"2\frac{1}{2}", "2.5"), ("2 1/2 hours", "2.5"),
        ("3/4", "0.75"), ("1/0", "1"), (r"\$1,200.00", "1200"), (r"$-\$5$", "-5"), (r"5\%", "5"),
        ("10^3", "1000"), ("-2^{10}", "-1024"), (r"3 \times 10^2", "300"), ("1.5 * 10^3 m", "1500"), ("0^0", "1"),
        # no number
        *((text, None) for text in ("", "none", "$", "-", ".")),
    ]  # fmt: skip
    assert [(text, read_number(text)) for text, _ in numbers] == [
        (text, number and Decimal(number)) for text, number in numbers
    ]


def test_the_last_number_is_found_where_a_point_or_a_comma_is_the_decimal_mark():
    numbers = {
        "20-5": "5", "$10-$5": "5", "3–5 hours": "5", "COVID-19": "19", r"an area of 18 m^2": "18",
        "an area of 18 m²": "18", "1.234": "1.234",
    }  # fmt: skip
    assert {text: str(last_number(text)) for text in numbers} == numbers
    numbers = {"1.234": "1234", "0.125": "0.125", "18.00": "18", "12345.678": "12345.678"}
    for text, number in numbers.items():
        assert last_number(text, has_decimal_comma=True) == Decimal(number)


def test_the_number_that_a_short_answer_gives_is_found():
    numbers = [
        ("18", "18"), ("72 clips in 2 months", "72"), ("x = 5", "5"), ("3 boxes * 4 = 12 of 20", "12"),
        ("18 =", "18"), (r"540 = 3 \times 60 \times 3", "540"), (r"\textbf{about} \$18 for 3 days", "18"),
        ("18 (3 days x 6 = 18)", "18"), ("John has 54 - 33 = 21 more than James", "21"),
        ("16 bars go to 8 children, so each gets 16/8 = 2 bars", "2"), ("Kylar pays $64 for 16 glasses", "64"),
        ("She makes $18 by selling 9 eggs at $2 each", "18"), ("Each gets 5 apples, with 2 left over", "5"),
        ("6 * 3 is 18", "18"), ("50% of 36 is 18", "18"), ("In 2 months she sold 72 clips", "72"),
        ("She sold 72 clips in 2 months", "72"),
    ]  # fmt: skip
    assert [(text, equated_number(text)) for text, _ in numbers] == [
        (text, number and Decimal(number)) for text, number in numbers
    ]


def test_the_number_that_is_stated_is_found():
    numbers = [
        ("Answer: 72 clips in 2 months", "72"), ("The final answer is **1200**. This took 5 steps.", "1200"),
        ("The answer is 18. Check: 9 * 2 = 18, 18 - 3 = 15.", "18"), ("**Answer:** 18\n2 eggs are left.", "18"),
        ("**Final Answer**\n\n$18\n\nIt took 3 steps.", "18"), ("### Answer:\n**18**\nIt took 3 steps.", "18"),
        ("Answer = 0. It took 3 steps.", "0"), ("Answer: Yes. 18 eggs.", "18"), ("Answer: 42 eggs, of 50", "42"),
        ("**Answer:** In 2 months Natalia sold 72 clips.", "72"),
        ("Answer: 3 sprints x 60 meters x 3 times a week, which is 540 meters.", "540"),
        ("### Answer\nJames runs 3 times a week, so he runs 540 meters.", "540"),
        ("The answer is: the 3 boys have 12 apples.", "12"), ("Answer: –5", "-5"),
        ("Answer: 5, no, the answer is 6. It took 3 steps.", "6"), ("The answer is not 18 but 20.", "20"),
        ("2 + 3 = 5\n**A:** $18.\n", "18"), ("A: 48 / 2 = 24. So 48 + 24 = 72. The answer is 72.", "72"),
        ("A: 10 apples\nB: 20 apples\nTotal: 30 apples", "30"), ("Option A: 5 dollars.\nSo 18 in all.", "18"),
        ("We look for the answer\nin 18 steps", "18"), ("BMIA: 3 and 5", "5"),
    ]  # fmt: skip
    assert [(text, stated_number(text)) for text, _ in numbers] == [
        (text, number and Decimal(number)) for text, number in numbers
    ]


@pytest.mark.long
@pytest.mark.slow
def test_long_texts_are_read_in_time_that_grows_with_them():
    for part in ("answer: ", "111 ", "1", "1.", "1,", "\\frac{", "A: \n", "1 1/", "$ ", "1" * 5_000 + " 1/2 "):
        stated_number(part * (100_000 // len(part)))
    for part in ("1,", "\\about", "1 = ", "in 1 ", "1 x ", "3^{"):
        equated_number(part * (100_000 // len(part)))
