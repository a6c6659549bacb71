"""No secret passes the scrubber, whatever it is wrapped in."""

import json

import pytest

from tools_app.audit.redaction import is_secret
from tools_app.telemetry import scrubbing
from tools_app.telemetry.about import FIELDS, about
from tools_app.telemetry.scrubbing import scrubbed

SECRET = "s3cr3t/V4lue"
KEY = "mcphub_" + "k" * 43


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"(b'authorization', b'Bearer {SECRET}')",
        f"[('X-Api-Key', '{SECRET}')]",
        f"Cookie: sessionid={SECRET}; csrftoken={SECRET}",
        f"GET /mcp?api_key={SECRET}&x=1",
        f"GET /cb?access_token={SECRET}",
        "postgres://hub:s3cr3t%2FV4lue@db.example/mcphub",
        "redis://:s3cr3t-V4lue@redis.example/0",
        f"password={SECRET} host=db",
        f"{{'password': '{SECRET}'}}",
        json.dumps({"client_secret": SECRET}),
        json.dumps(json.dumps({"api_key": f'x"{SECRET}'})),
        repr(json.dumps({"passphrase": SECRET})),
        f"private_key: {SECRET}",
        f'"db_password_old" : "{SECRET} with a blank"',
        f"DB_PASSWORD={SECRET}",
        f'{{"password": "{SECRET} and then it was cut',
        f'{{\\"password\\": \\"{SECRET} and then it was cut',
    ],
)
def test_what_stands_where_a_secret_stands_is_hidden(text):
    shown = scrubbed(text)

    assert "s3cr3t" not in shown
    assert "V4lue" not in shown
    assert scrubbing.HIDDEN in shown


def test_a_key_of_the_hub_is_hidden_wherever_it_stands_but_for_what_the_admin_shows_of_it():
    assert scrubbed(f"the key {KEY}.") == f"the key {KEY[:12]}{scrubbing.HIDDEN}."


@pytest.mark.parametrize(
    "text",
    [
        "Call 0192 of count was settled as lost: its process died",
        "max_tokens=5, 3 tokens left",
        "GET /mcp?page=2",
        "postgres://db.example/mcphub",
        "A valid API key is needed.",
        "The channel layer is away, waiters poll until it is back: [Errno 111]",
    ],
)
def test_everything_else_stays_as_it_is(text):
    assert scrubbed(text) == text


def test_values_that_the_process_was_told_of_are_hidden_in_each_spelling(monkeypatch):
    monkeypatch.setattr(scrubbing, "_known", scrubbing._Known())
    scrubbing.hide('pa"ss/wörd')
    scrubbing.hide_password_of("amqp://hub:br%40ker@mq.example/", "redis://:first1@a;redis://:second2@b")

    spellings = [json.dumps({"x": 'pa"ss/wörd'}), 'pa"ss/wörd', "pa%22ss%2Fw%C3%B6rd", "br@ker first1 second2"]
    shown = scrubbed(" ".join(spellings))

    assert [word for word in ("ss/w", "%2Fw", "br@ker", "first1", "second2") if word in shown] == []


def test_arguments_with_secret_names_are_hidden_in_whatever_the_call_logs(monkeypatch):
    monkeypatch.setattr(scrubbing, "_known", scrubbing._Known())
    scrubbing.hide_arguments(is_secret)
    arguments = {"nested": [{"api_token": {"deep": ["hunter22"]}}], "pin": 123456, "city": "Amsterdam"}
    token = about.set((None,) * len(FIELDS) + (arguments,))
    try:
        assert scrubbed("no hunter22 nor 123456 in Amsterdam") == "no [redacted] nor [redacted] in Amsterdam"
    finally:
        about.reset(token)


def test_a_long_text_is_cut_and_a_strange_one_takes_no_time():
    assert len(scrubbed("x" * 1_000_000)) < 70_000
    assert len(scrubbed("token" * 20_000)) < 70_000
    assert len(scrubbed("secret" + "\\" * 60_000)) < 70_000
