import html
import json
from urllib.parse import quote, quote_plus

import pytest

from tools_app.execution.outgoing.scrubbing import REPLACEMENT, Scrubber

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
