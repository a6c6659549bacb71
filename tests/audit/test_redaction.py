"""What the audit log keeps: no secrets, and not too much."""

import json

import pytest

from tools_app.audit.redaction import HIDDEN, kept


@pytest.mark.parametrize(
    "name", ["password", "X-Api-Key", "apiKey", "api_key", "access_token", "Authorization", "db_password_old", "PIN"]
)
def test_values_of_secret_names_are_hidden_at_any_depth(name: str) -> None:
    text, _ = kept({"outer": [{name: "s3cr3t"}]})
    assert json.loads(text) == {"outer": [{name: HIDDEN}]}


@pytest.mark.parametrize("name", ["max_tokens", "token_count", "spinning", "author"])
def test_names_that_only_look_alike_stay(name: str) -> None:
    assert json.loads(kept({name: 5})[0]) == {name: 5}


def test_a_tenant_hides_names_of_its_own() -> None:
    assert json.loads(kept({"ssn": 1, "other": 2}, ("SSN",))[0]) == {"ssn": HIDDEN, "other": 2}


def test_json_inside_a_text_hides_nothing_less() -> None:
    text = json.loads(kept({"text": '{"password":"s3cr3t"}'})[0])["text"]
    assert json.loads(text) == {"password": HIDDEN}


def test_a_large_value_keeps_its_size_and_its_beginning() -> None:
    text, size = kept("x" * 200_000)
    assert size == 200_002
    shown = json.loads(text)
    assert shown["truncated"] is True
    assert shown["size"] == size
    assert len(shown["head"]) < size
