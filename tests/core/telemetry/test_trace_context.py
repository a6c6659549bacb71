"""The trace context of a request, from `_meta` and headers."""

import pytest

from tools_app.core.telemetry import tracing

IDS = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{IDS}-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "garbage",
        TRACEPARENT.upper(),
        f"{TRACEPARENT}-more",
        f" {TRACEPARENT}",
        f"ff-{IDS}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{IDS}-{'0' * 16}-01",
        f"00-{IDS[:-1]}-00f067aa0ba902b7-01",
        7,
        None,
        [TRACEPARENT],
    ],
    ids=str,
)
def test_what_is_no_traceparent_names_no_trace(traceparent):
    assert tracing.trace_id({"_meta": {"traceparent": traceparent}}, {}) == ""
    assert tracing.carrier_of({"_meta": {"traceparent": traceparent}}, {}) == {}


def test_the_trace_comes_from_meta_or_from_the_header():
    assert tracing.trace_id({"_meta": {"traceparent": TRACEPARENT}}, {}) == IDS
    assert tracing.trace_id({}, {"traceparent": TRACEPARENT}) == IDS


def test_meta_wins_over_the_header_unless_it_is_not_valid():
    assert tracing.trace_id({"_meta": {"traceparent": TRACEPARENT}}, {"traceparent": OTHER}) == IDS
    assert tracing.trace_id({"_meta": {"traceparent": "x"}}, {"traceparent": TRACEPARENT}) == IDS


@pytest.mark.parametrize("meta", [None, [], "text", 5], ids=str)
def test_a_meta_that_is_no_object_says_nothing(meta):
    assert tracing.trace_id({"_meta": meta}, {}) == ""
    assert tracing.carrier_of({"_meta": meta}, {"traceparent": TRACEPARENT}) == {"traceparent": TRACEPARENT}


def test_a_carrier_takes_all_from_one_place_and_nothing_endless():
    meta = {"traceparent": TRACEPARENT, "tracestate": "a=b", "baggage": "x" * 9000, "progressToken": 1}

    assert tracing.carrier_of({"_meta": meta}, {"baggage": "user=eve"}) == {
        "traceparent": TRACEPARENT,
        "tracestate": "a=b",
    }
