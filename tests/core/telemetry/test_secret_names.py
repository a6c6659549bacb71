import base64
import html
import json
from collections.abc import Callable
from functools import partial
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.linear import assert_linear
from tools_app.core.telemetry.secret_names import REPLACEMENT, Scrubber

SECRET = 'p/q "r" & s+é\n'


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        html.escape(SECRET),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(SECRET).replace("/", r"\/"),
        quote(SECRET).lower(),
        quote(SECRET, safe="").lower(),
        quote(SECRET, safe="").replace("%2F", "%2f"),
        quote_plus(SECRET).lower(),
        quote(quote(SECRET, safe=""), safe=""),
        json.dumps(SECRET).replace("00e9", "00E9"),
        html.escape(SECRET).replace("&#x27;", "&#39;"),
        repr(SECRET)[1:-1],
        json.dumps(json.dumps(SECRET)[1:-1])[1:-1],
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        # Whichever characters are escaped, in whichever way
        SECRET.replace("p", r"\u0070"),
        SECRET.replace("/", r"\/").replace("s", r"\\u0073").replace("+", r"\\\u002B").replace('"', r"\\\""),
        "".join(f"\\u{ord(character):04X}" for character in SECRET),
        "".join(f"\\x{ord(character):02x}" for character in SECRET),
        "".join(f"&#{ord(character)};" for character in SECRET),
        "".join(f"&#x{ord(character):04X};" for character in SECRET),
        SECRET.replace("q", "&#113;").replace('"', "&quot;").replace("s", "%73"),
        "".join(f"%{byte:02x}" for byte in SECRET.encode()),
        "".join(f"%252525{byte:02X}" for byte in SECRET.encode()),
        SECRET.encode().hex().replace("7", r"\u0037"),
    ],
)
def test_a_secret_is_replaced_in_every_spelling(spelling: str) -> None:
    scrubber = Scrubber([SECRET])
    sentence = f"a {spelling} b".replace('a "', "a ").replace('" b', " b")

    assert scrubber.text(sentence) == f"a {REPLACEMENT} b"
    assert scrubber.data(sentence.encode()) == f"a {REPLACEMENT} b".encode()
    assert scrubber.finds(spelling)
    assert scrubber.finds(spelling.encode())


def test_the_longer_of_two_secrets_goes_as_a_whole() -> None:
    assert Scrubber(["token", "token-long"]).text("x token-long token") == f"x {REPLACEMENT} {REPLACEMENT}"


def test_an_empty_secret_replaces_nothing() -> None:
    scrubber = Scrubber([""])

    assert scrubber.text("text") == "text"
    assert scrubber.data(b"data") == b"data"
    assert not scrubber.finds("text")
    assert not scrubber.finds(b"data")


def test_a_json_value_is_cleaned_in_keys_texts_and_numbers() -> None:
    value = {"a": ["x 12345 y", 12345, 1, True, None], "12345": {"b": 1.5}}

    assert Scrubber(["12345"]).value(value) == {
        "a": [f"x {REPLACEMENT} y", REPLACEMENT, 1, True, None],
        REPLACEMENT: {"b": 1.5},
    }


def test_other_escapes_are_left_as_they_are() -> None:
    scrubber = Scrubber(["key-😀-1"])

    assert (
        scrubber.text(r'%20 \u0041 "\\ key-\ud83D\\ude00-\u0031 &amp; \n %2')
        == rf'%20 \u0041 "\\ {REPLACEMENT} &amp; \n %2'
    )
    assert scrubber.text(r"\\\k\u00 &#; &#99999999; &#x110000; %") == r"\\\k\u00 &#; &#99999999; &#x110000; %"


@pytest.mark.parametrize("more", [1, 1.5, 2**70, float("nan"), "\ud800", '"\\\n'])
def test_a_json_value_is_taken_apart_only_if_it_contains_a_secret(more: object) -> None:
    scrubber = Scrubber(['pass"wörd', "12345"])
    harmless = {"texts": ["word", {"pass": more}], "numbers": [1234, 5.5, None]}
    value = {'a pass"wörd': [more, r"pass\u0022w\u00f6rd", 91234567, 1.2345]}

    assert scrubber.value(harmless) is harmless
    assert repr(scrubber.value(value)) == repr({f"a {REPLACEMENT}": [more, REPLACEMENT, REPLACEMENT, 1.2345]})


@pytest.mark.parametrize("before", ["", "u", "us", "use", "user:"])
@pytest.mark.parametrize("after", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_is_found_in_base64_whatever_stands_around_it(
    before: str, after: str, encode: Callable[[bytes], bytes]
) -> None:
    encoded = encode(f"{before}{SECRET}{after}".encode()).decode()
    cleaned = Scrubber([SECRET]).text(f"Basic {encoded}")
    assert REPLACEMENT in cleaned
    rest = cleaned.replace(REPLACEMENT, "").removeprefix("Basic ").rstrip("=")
    assert len(rest) <= len(before) * 4 // 3 + len(after) * 4 // 3 + 6


def test_a_short_secret_is_not_looked_for_in_encoded_texts() -> None:
    assert Scrubber(["abc"]).text("616263 YWJj") == "616263 YWJj"


@pytest.mark.slow
@given(st.text(min_size=1, max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_no_spelling_of_a_secret_comes_through(secret: str, before: str, after: str) -> None:
    scrubber = Scrubber([secret])
    for spell in (str, partial(quote, safe="", errors="replace"), partial(quote_plus, errors="replace"), json.dumps):
        assert not any(map(scrubber.finds, scrubber.text(before + spell(secret) + after).split(REPLACEMENT)))
        if len(secret) > len(REPLACEMENT):
            assert secret not in scrubber.text(before + spell(secret) + after)


@pytest.mark.parametrize("piece", ["a", "%2", "%25", "ab%2f", "YWJj", "\\u00", "\\", r"\u0061", "&#0", "&#97;"])
def test_the_time_that_it_takes_grows_with_the_text_and_no_faster(piece: str) -> None:
    scrubber = Scrubber(["a" * 200, "%2f" * 40, "abcabcabc"])

    assert_linear(lambda times: scrubber.text(piece * times), 5_000)
