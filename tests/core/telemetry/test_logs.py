"""Log formatters: fields of records in text and in JSON."""

import json
import logging
import sys

import pytest
import structlog

from tools_app.audit.recorder.redaction import is_secret
from tools_app.core.telemetry import scrubbing
from tools_app.core.telemetry.log_context import log_fields
from tools_app.core.telemetry.logs import formatter


@pytest.fixture
def a_call(monkeypatch):
    """A running call."""
    monkeypatch.setattr(scrubbing, "_known", scrubbing._Known())
    scrubbing.hide_arguments(is_secret)
    token = log_fields.set(("tools/call", '"7"', "acme", None, "0192-call", "0af7", [{"password": "hunter22"}]))
    yield
    log_fields.reset(token)


def record(message, *values, exc_info=None, **more):
    log_record = logging.LogRecord("tools_app.x", logging.WARNING, __file__, 1, message, values, exc_info)
    log_record.__dict__.update(more)
    return log_record


def test_a_line_of_text_says_when_how_bad_who_and_what():
    line = formatter("TEXT").format(record("%d records lost", 3))

    assert line[10] == "T"
    assert line.endswith("WARNING tools_app.x: 3 records lost")


def test_a_line_of_json_names_the_call_and_all_that_is_known_of_it(a_call):
    logged = json.loads(formatter("JSON").format(record("Hello", shelf=4)))

    assert logged.pop("time").startswith("20")
    assert logged == {
        "level": "warning",
        "logger": "tools_app.x",
        "message": "Hello",
        "shelf": 4,
        "method": "tools/call",
        "request_id": '"7"',
        "tenant": "acme",
        "call_id": "0192-call",
        "trace_id": "0af7",
    }


@pytest.mark.parametrize("style", ["TEXT", "JSON"])
def test_no_line_holds_a_secret_of_the_call_not_even_in_its_traceback(a_call, style):
    try:
        raise ValueError("hunter22 is wrong for api_key=abcdef")
    except ValueError:
        line = formatter(style).format(record("Failed: %s", {"token": "abcdef"}, exc_info=sys.exc_info()))

    assert "Traceback" in line
    assert "ValueError" in line
    assert [secret for secret in ("hunter22", "abcdef") if secret in line.replace("raise ValueError", "")] == []


def test_a_value_under_a_secret_name_is_hidden(a_call):
    logged = json.loads(formatter("JSON").format(record("Hello", api_key="abc", more={"secret": "abc"})))

    assert (logged["api_key"], logged["more"]) == ("[redacted]", "{'secret': [redacted]}")


def test_what_a_client_sent_cannot_pretend_to_be_a_line_of_its_own():
    line = formatter("TEXT").format(record("Tool %s", "x\n2026-01-01 ERROR root: forged"))

    assert len(line.splitlines()) == 1


FORGED = "x\r\n2026-01-01T00:00:00Z ERROR root: forged\x1b[2J\x9b2J\u2028\u202e\x85\x0b"


def test_what_an_exception_says_cannot_pretend_to_be_a_line_of_its_own():
    try:
        raise ValueError(FORGED) from RuntimeError(FORGED)
    except ValueError:
        lines = formatter("TEXT").format(record("Failed", exc_info=sys.exc_info())).split("\n")

    assert lines[0].endswith("tools_app.x: Failed")
    assert all(line.startswith("  | ") for line in lines[1:])
    assert any("forged" in line for line in lines)


@pytest.mark.parametrize("style", ["TEXT", "JSON"])
def test_nothing_that_is_logged_gives_orders_to_a_terminal(style):
    try:
        raise ValueError(FORGED)
    except ValueError:
        line = formatter(style).format(record(f"At /{FORGED}", exc_info=sys.exc_info(), path=FORGED))

    assert "forged" in line
    assert [letter for letter in line.replace("\n", "") if not letter.isprintable()] == []
    if style == "JSON":
        assert json.loads(line)["path"] == FORGED


def test_a_record_without_an_exception_is_one_line_whatever_its_fields_and_its_logger_are_called():
    log_record = record("Hello", shelf=FORGED)
    log_record.name = FORGED

    assert len(formatter("TEXT").format(log_record).splitlines()) == 1


def test_apps_may_log_by_structlog_too(a_call, caplog):
    line = formatter("JSON")
    with caplog.at_level(logging.INFO):
        structlog.get_logger("their.app").info("indexed", shelves=3)

    logged = json.loads(line.format(caplog.records[0]))
    assert (logged["message"], logged["shelves"], logged["call_id"]) == ("indexed", 3, "0192-call")
