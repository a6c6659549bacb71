"""Numbers of JSON that neither 64 bits nor a float hold."""

import json
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest

from tools_app.protocol import exact_json

WINDOW = exact_json._WINDOW


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9223372036854775808", 2**63),
        ("18446744073709551616", Decimal(2**64)),
        ("-9223372036854775809", Decimal(-(2**63) - 1)),
        (str(10**308), Decimal(10**308)),
        ("0.12345678901234567890", Decimal("0.12345678901234567890")),
        ("-12345678901234567.25", Decimal("-12345678901234567.25")),
        ("1.0000000000000000000000001E+300", Decimal("1.0000000000000000000000001E+300")),
        ("0.30000000000000004", 0.30000000000000004),
        ("-0.0", -0.0),
        ("5.0", 5.0),
        ("1e+22", 1e22),
        ('"12345678901234567890.12345"', "12345678901234567890.12345"),
    ],
)
def test_a_number_of_any_length_is_read_and_written_with_all_its_digits(text: str, value: Any) -> None:
    # The second place is where one window of the search ends.
    for before in ("", " " * (WINDOW - 9)):
        read = exact_json.loads(f'{before}{{"a":[{text}]}}'.encode())
        assert read == {"a": [value]}
        assert type(read["a"][0]) is type(value)
        assert exact_json.dumps(read).decode() == f'{{"a":[{text}]}}'


@pytest.mark.parametrize(
    "text", ["1e400", "1" * 310, "1e-400", "0." + "1" * 500, "NaN", "[" * 900 + "12345678901234567890"]
)
def test_a_number_that_no_float_comes_near_is_an_error(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        exact_json.loads(text)


@pytest.mark.parametrize("value", [Decimal(10**309), Decimal("1e-400"), Decimal("0." + "1" * 500), object()])
def test_what_could_not_be_read_again_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError):
        exact_json.dumps({"a": [value]})


def test_what_is_no_number_is_null_and_other_types_become_text_if_the_caller_says_so() -> None:
    values = [math.nan, math.inf, Decimal("NaN"), Decimal("-Infinity")]
    assert json.loads(exact_json.dumps(values)) == [None] * 4
    assert exact_json.dumps([UUID(int=1), Decimal("1.50"), 1j], default=exact_json.decimal_or_text).endswith(
        b',1.50,"1j"]'
    )


def test_python_functions_get_and_return_numbers_of_python() -> None:
    value = {"a": [2**70, {"b": Decimal("0.12345678901234567890")}, True, "x"], "c": (1, -(2**70))}
    read = exact_json.loads(exact_json.dumps(exact_json.with_decimals(value)))
    nearest = {"a": [2**70, {"b": 0.12345678901234568}, True, "x"], "c": [1, -(2**70)]}
    assert exact_json.without_decimals(read) == nearest


@pytest.mark.parametrize("text", ["1.7976931348623158e308", "1" * 395 + "e-400", "1" * 300 + "e-10", "-" + "9" * 308])
def test_what_is_read_can_be_written(text: str) -> None:
    try:
        read = exact_json.loads(f"[{text}]")
    except orjson.JSONDecodeError:
        return
    assert exact_json.loads(exact_json.dumps(read)) == read


@pytest.mark.parametrize(
    ("value", "number"), [(5, 5), (0.5, 0.5), (Decimal("0.10000000000000001"), 0.1), (True, None), ("5", None)]
)
def test_a_number_that_is_not_passed_on_is_an_int_or_a_float(value: Any, number: Any) -> None:
    assert exact_json.number(value) == number
    assert type(exact_json.number(value)) is type(number)
