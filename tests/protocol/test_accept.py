"""The `Accept` header."""

import pytest

from tools_app.protocol import inbound
from tools_app.protocol.inbound import accepted

JSON, STREAM = "application/json", "text/event-stream"
WHATEVER, NEITHER = "json unless there is no choice", "nothing"
BOTH, ONLY_JSON, ONLY_STREAM = "what fits", "json", "a stream"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, WHATEVER),
        ("", WHATEVER),
        ("*/*", WHATEVER),
        ("application/json, text/plain, */*", WHATEVER),
        ("*/*;q=0.1", WHATEVER),
        (f"{JSON}, {STREAM}", BOTH),
        (f"{STREAM},{JSON}", BOTH),
        ("Application/JSON , Text/Event-Stream", BOTH),
        (f"{JSON}; charset=utf-8, {STREAM}; q=1.0", BOTH),
        (f"{JSON}, {STREAM};q=0.9", BOTH),
        ("application/*, text/*", BOTH),
        (f"{STREAM}, */*", BOTH),
        (f"{JSON};q=much, {STREAM};q=9", BOTH),
        (JSON, ONLY_JSON),
        ("application/*", ONLY_JSON),
        (f"{JSON}, {STREAM};q=0", ONLY_JSON),
        (f"{STREAM};q=0, */*", ONLY_JSON),
        (f"text/html, {JSON}", ONLY_JSON),
        (STREAM, ONLY_STREAM),
        ("text/*", ONLY_STREAM),
        (f"{JSON};q=0, */*", ONLY_STREAM),
        (f"{JSON};q=0, {STREAM}", ONLY_STREAM),
        (f"{JSON};q=0.5, {STREAM}", ONLY_STREAM),
        ("text/html", NEITHER),
        ("nonsense", NEITHER),
        (";;;", NEITHER),
        (",", NEITHER),
        ("*/*;q=0", NEITHER),
        ("x" * 5000, NEITHER),
        ("application/json-seq, text/event-streams", NEITHER),
    ],
)
def test_a_header_says_what_may_answer(header: str | None, expected: str) -> None:
    found = accepted(header)
    assert (found.json, found.stream) == {
        WHATEVER: (True, False),
        BOTH: (True, True),
        ONLY_JSON: (True, False),
        ONLY_STREAM: (False, True),
        NEITHER: (False, False),
    }[expected]
    assert found.only_stream is (expected in (WHATEVER, BOTH, ONLY_STREAM))


def test_a_long_header_is_not_remembered() -> None:
    before = inbound._cached.cache_info()
    assert accepted(f"{JSON}, {'a/b;' * inbound.MAX_CACHED}").json
    assert inbound._cached.cache_info() == before
