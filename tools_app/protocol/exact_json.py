"""JSON whose numbers of any length pass unchanged.

orjson reads a number that neither 64 bits nor a float hold as the nearest float. Here, it becomes a Decimal, which is
written with the same digits. A number beyond the range of a float, or of more than MAX_NUMBER_LENGTH characters, is an
error.
"""

from decimal import Decimal
from functools import partial
from json import JSONDecoder
from math import isinf
from typing import Any, Final

import orjson

MAX_NUMBER_LENGTH: Final = 400
# 64 bits hold any integer of up to 18 digits, and a float any decimal of up to 15 between these.
_INTEGER_DIGITS: Final = 18
_FLOAT_DIGITS: Final = 15
_SMALLEST: Final = 1e-300
_WINDOW: Final = 64 * 1024
# Maps digits and points to "0", and what precedes a small exponent to "e-"; everything else to a blank.
_KINDS: Final = (
    bytes(
        ord({".": "0", "-": "-", "e": "e", "E": "e"}.get(chr(byte), "0" if chr(byte).isdecimal() else " "))
        for byte in range(128)
    )
    + b" " * 128
)
_LONG: Final = b"0" * (_FLOAT_DIGITS + 1)
_SMALL: Final = b"e-000"


def loads(data: bytes | bytearray | str) -> Any:
    """Parse JSON (RFC 8259). Raises orjson.JSONDecodeError, also for a number that is too long, large or small."""
    value = orjson.loads(data)
    raw = data.encode() if isinstance(data, str) else data
    # A cheap search for what may be a long number. In windows, so that a large text is not copied whole; they overlap
    # by what is searched for.
    for start in range(0, len(raw), _WINDOW):
        kinds = raw[start : start + _WINDOW + _FLOAT_DIGITS].translate(_KINDS)
        if _LONG in kinds or _SMALL in kinds:
            break
    else:
        return value
    del value  # the memory of a large value is needed once only
    try:
        return _DECODER.decode(raw.decode())
    except ValueError as problem:
        raise orjson.JSONDecodeError(str(problem), "", 0) from None
    except RecursionError:
        raise orjson.JSONDecodeError("nested too deeply", "", 0) from None


def _integer(text: str) -> int | Decimal:
    if len(text) <= _INTEGER_DIGITS or -(2**63) <= int(text) < 2**64:
        return int(text)
    return Decimal(text)


def _number(text: str) -> float | Decimal:
    nearest = float(text)
    if (len(text) <= _FLOAT_DIGITS and abs(nearest) > _SMALLEST) or repr(nearest) == text:
        return nearest
    if len(text) > MAX_NUMBER_LENGTH:
        raise ValueError(f"a number has more than {MAX_NUMBER_LENGTH} characters")
    exact = Decimal(text)
    if exact == Decimal(repr(nearest)):
        return nearest
    if not nearest:
        raise ValueError("a number is too small")
    if len(str(exact)) > MAX_NUMBER_LENGTH:
        raise ValueError(f"a number has more than {MAX_NUMBER_LENGTH} digits")
    return exact


_DECODER: Final = JSONDecoder(parse_int=_integer, parse_float=_number)


def decimal(value: Any) -> orjson.Fragment | None:
    """Return a Decimal as orjson writes it: the default of `dumps`. Raises TypeError for all else."""
    if not isinstance(value, Decimal):
        raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
    if not value.is_finite():
        return None  # as orjson writes such a float
    # What `loads` would refuse is not written.
    nearest = float(value)
    if isinf(nearest) or (value and not nearest):
        raise TypeError("Number exceeds the range of a float")
    text = str(value)
    if len(text) > MAX_NUMBER_LENGTH:
        raise TypeError(f"Number has more than {MAX_NUMBER_LENGTH} characters")
    return orjson.Fragment(text)


def decimal_or_text(value: Any) -> Any:
    """Return a value of a type that JSON lacks as text, a default for `dumps`."""
    return decimal(value) if isinstance(value, Decimal) else str(value)


# Returns a value as JSON, as `orjson.dumps` does. Integers beyond 64 bits must be Decimals: see `with_decimals`.
dumps: Final = partial(orjson.dumps, default=decimal)


def with_decimals(value: Any) -> Any:
    """Return a value of a Python function with a Decimal in place of each integer beyond 64 bits."""
    if isinstance(value, dict):
        return {name: with_decimals(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_decimals(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= int(value) < 2**64:
        return Decimal(value)
    return value


def number(value: Any) -> int | float | None:
    """Return a number that was read here as an int, or else the nearest float; None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return without_decimals(value)  # type: ignore[no-any-return]


def without_decimals(value: Any) -> Any:
    """Return a value that was read here with an int, or else the nearest float, in place of each Decimal."""
    if isinstance(value, dict):
        return {name: without_decimals(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_decimals(inner) for inner in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
