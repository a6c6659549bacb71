"""Redaction and truncation of payloads in the audit log."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.linear import assert_linear
from tools_app.audit.recorder import redaction
from tools_app.audit.recorder.redaction import (
    ANYWHERE,
    AT_THE_END,
    HIDDEN,
    for_audit_log,
    is_secret,
    redacted_cause,
    redacted_json,
    shown,
)

HYPHEN, BLANK, WIDTHLESS, KELVIN = "\u2011", "\u00a0", "\u200b", "\u212a"
SECRET = "s3cr3t-V4lue"
FAMILY = [
    *("password", "X-Api-Key", "apiKey", "api_key", "access_token", "Authorization", "db_password_old", "PIN"),
    *("pwd", "user_pwd", "access_key", "AWS_ACCESS_KEY_ID", "passcode", "jwt", "id_jwt", "otp", "totp", "otp_code"),
    *("private_key", "client_secret", "bearer", "cookie", "Set-Cookie", "cookies", "session_token", "cvv", "cvc"),
    *(
        "credential",
        "credentials",
        "refresh_token",
        "signature",
        "newPin2",
        "pin_confirm",
        "token_value",
        "seed phrase",
    ),
    *("passwd", "passphrase", "signing_key", "encryptionKey", "master_key", "ssh_key", "mnemonic"),
    *("security_code", "verificationCode", "recovery_codes", "pin_code_2", "MFA code"),
]
HARMLESS = [
    *("max_tokens", "token_count", "tokens", "spinning", "author", "authors", "pinned", "spin", "hairpin", "opinion"),
    *(
        "keyboard",
        "primary_key",
        "key",
        "monkey",
        "signed",
        "design",
        "cookies_enabled",
        "bearing",
        "mapping",
        "option",
    ),
    *("value", "old", "", "123", "footprint", "compass", "bypass", "passenger", "secretary"[:0] or "name"),
]


@pytest.mark.parametrize("name", FAMILY)
def test_values_of_secret_names_are_hidden_at_any_depth(name: str) -> None:
    text, _ = for_audit_log({"outer": [{name: "s3cr3t"}]})
    assert json.loads(text) == {"outer": [{name: HIDDEN}]}


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_only_look_alike_stay(name: str) -> None:
    assert json.loads(for_audit_log({name: 5})[0]) == {name: 5}


@pytest.mark.parametrize(
    "name",
    [
        f"api{HYPHEN}key",
        f"api{BLANK}key",
        "api\tkey",
        f"pass{WIDTHLESS}word",
        f"api_{KELVIN}ey",
        "p\u0430ssword",  # a Cyrillic a
        "p\u00e4ssword",
        "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44",  # full width
        "pass\ufe0fword",
        "pa\u0301ssword",
        "pass\u00adword",
        "pass\u3164word",
        "\U0001d429assword",  # mathematical bold
        "\ufefftoken\u2060",
    ],
)
def test_a_name_is_secret_in_every_spelling_that_looks_the_same(name: str) -> None:
    assert json.loads(for_audit_log({name: "s3cr3t"})[0]) == {name: HIDDEN}


def test_letters_that_json_writes_otherwise_are_the_same_letters() -> None:
    text, _ = redacted_json(b'{"p\\u0061ssword": "s3cr3t", "outer": "{\\"\\u0070wd\\":1}"}')
    assert "s3cr3t" not in text
    assert json.loads(json.loads(text)["outer"]) == {"pwd": HIDDEN}


def disguised(word: str) -> st.SearchStrategy[str]:
    """The word with separators and invisible characters between its letters, in mixed case."""
    between = st.text(st.sampled_from("_-. \t\u00a0\u2011\u200b\u00ad\ufeff\u2060\ufe0f"), max_size=2)
    letters = [st.sampled_from([letter, letter.upper()]) for letter in word]
    return st.tuples(*(part for letter in letters for part in (letter, between))).map("".join)


@given(st.sampled_from([*ANYWHERE, *AT_THE_END]).flatmap(disguised), st.sampled_from(["", "db_", "X-", "my "]))
def test_no_disguise_makes_a_secret_name_another_one(name: str, before: str) -> None:
    assert is_secret(before + name)


@given(st.text(max_size=40))
@example("\ufdfa" * 30)
def test_the_way_in_which_unicode_is_composed_makes_no_difference(name: str) -> None:
    forms = {is_secret(unicodedata.normalize(form, name)) for form in ("NFC", "NFD", "NFKC", "NFKD")}
    assert len(forms | {is_secret(name)}) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.just(SECRET),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "pwd", "b c"]), inner),
    )
)
def test_what_is_kept_has_the_form_of_what_came(value: Any) -> None:
    assert_same_form(shown(value), json.loads(json.dumps(value)))


def assert_same_form(shown: Any, value: Any) -> None:
    if isinstance(value, dict):
        assert list(shown) == list(value)
        for key in value:
            if key == "pwd":
                assert shown[key] == HIDDEN
            else:
                assert_same_form(shown[key], value[key])
    elif isinstance(value, list):
        assert len(shown) == len(value)
        for one, other in zip(shown, value, strict=True):
            assert_same_form(one, other)
    else:
        assert shown == value


@pytest.mark.parametrize(
    "fields",
    [
        '"a": "b", ":password": "{}"',
        '"password" :"{}"',
        '"password"\n\t: "{}"',
        '"pass\\nword": "{}"',
        '"pass\\"word": "{}"',
    ],
)
def test_a_secret_is_hidden_in_a_long_text_however_its_name_is_written(fields: str) -> None:
    text, _ = redacted_json(('{"padding": "' + "x" * 300 + '", ' + fields.format(SECRET) + "}").encode())
    assert SECRET not in text
    assert HIDDEN in text


# What could hide where a name begins or ends.
CONFUSING = st.text(st.sampled_from('":\\{}[],/ \n\tpin'), max_size=6)
NAMES = st.sampled_from(["pwd", "a", "api key", "pin"]) | CONFUSING | CONFUSING.map("pwd".__add__)


@given(
    st.recursive(
        st.integers(0, 5) | CONFUSING | st.just(SECRET),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3) | inner.map(json.dumps),
    ),
    st.sampled_from([None, 2]),
)
def test_nothing_more_or_less_is_hidden_in_a_long_text_whose_names_are_searched_first(value: Any, indent: Any) -> None:
    whole = {"padding": "x" * 300, "value": value}
    text, _ = redacted_json(json.dumps(whole, indent=indent).encode())
    assert json.loads(text) == redaction._redacted(whole, ())


def test_a_tenant_hides_names_of_its_own() -> None:
    assert json.loads(for_audit_log({"ssn": 1, "other": 2}, ("SSN",))[0]) == {"ssn": HIDDEN, "other": 2}
    assert json.loads(for_audit_log({"my ssn": 1, "ssn_count": 2}, ("SSN",))[0]) == {"my ssn": HIDDEN, "ssn_count": 2}
    russian = "\u043f\u0430\u0440\u043e\u043b\u044c"
    assert json.loads(for_audit_log({russian.upper(): 1, "a": 2}, (russian,))[0]) == {russian.upper(): HIDDEN, "a": 2}
    assert json.loads(for_audit_log({"a": 1, "": 2}, ("--", ""))[0]) == {"a": 1, "": 2}


@pytest.mark.parametrize("before", ["", " ", "\n\t ", "\ufeff", "\u00a0", "\u200b\r\n", "\x00"])
@pytest.mark.parametrize("after", ["", "\n", " \ufeff"[:1]])
def test_json_inside_a_text_hides_nothing_less(before: str, after: str) -> None:
    inner = before + '{"password":"s3cr3t"}' + after
    assert json.loads(json.loads(for_audit_log({"text": inner})[0])["text"]) == {"password": HIDDEN}
    inner = before + '[[{"password":"s3cr3t"}]]' + after
    assert json.loads(json.loads(for_audit_log([inner])[0])[0]) == [[{"password": HIDDEN}]]


def test_json_inside_json_inside_a_text_hides_nothing_less() -> None:
    text = for_audit_log({"text": json.dumps({"body": json.dumps({"pwd": "s3cr3t"})})})[0]
    assert "s3cr3t" not in text
    assert json.loads(json.loads(json.loads(text)["text"])["body"]) == {"pwd": HIDDEN}


@pytest.mark.parametrize("text", ["{password: s3cr3t", "[not JSON] password", "\ud800{}", "", "password", "{}"])
def test_a_text_that_is_no_json_stays(text: str) -> None:
    assert redaction._redacted(text, ()) == text


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}], ids=["list", "object"])
def test_what_is_nested_less_deep_is_kept(wrap: Any) -> None:
    value: Any = "kept"
    for _ in range(redaction.MAX_DEPTH):
        value = wrap(value)
    deeper = wrap(value)
    assert redaction._redacted(value, ()) == value
    assert "kept" not in str(redaction._redacted(deeper, ()))


def test_a_text_that_holds_json_without_secrets_stays_as_it_was_written() -> None:
    text = '{"a": 1,  "b": [2]}'
    assert shown({"text": text, "pwd": SECRET}) == {"text": text, "pwd": HIDDEN}


def test_what_is_nested_too_deep_to_be_written_again_is_hidden() -> None:
    deep: Any = "s3cr3t"
    for _ in range(redaction.MAX_DEPTH + 20):
        deep = [deep]
    text, _ = for_audit_log({"password": 1, "deep": deep, "text": "[" * 300 + '{"pwd": 1}' + "]" * 300})
    assert "s3cr3t" not in text
    assert json.loads(text)["password"] == HIDDEN


def test_a_large_value_keeps_its_size_and_its_beginning() -> None:
    text, size = for_audit_log("x" * 200_000)
    assert size == 200_002
    kept_of_it = json.loads(text)
    assert kept_of_it["truncated"] is True
    assert kept_of_it["size"] == size
    assert kept_of_it["head"] == '"' + "x" * 65_535


def test_a_value_of_just_the_limit_is_kept_whole(settings: Any) -> None:
    settings.MCPHUB_MAX_PAYLOAD_BYTES = 10
    assert for_audit_log("x" * 8) == ('"xxxxxxxx"', 10)
    assert json.loads(for_audit_log("x" * 9)[0]) == {"truncated": True, "size": 11, "head": '"' + "x" * 9}


def test_a_letter_of_several_bytes_is_not_cut_in_two(settings: Any) -> None:
    settings.MCPHUB_MAX_PAYLOAD_BYTES = 10
    assert json.loads(for_audit_log("\u00e9" * 8)[0]) == {"truncated": True, "size": 18, "head": '"' + "\u00e9" * 4}


def test_what_json_does_not_know_is_kept_as_text() -> None:
    assert json.loads(for_audit_log({"at": complex(1, 2)})[0]) == {"at": "(1+2j)"}


# --- Causes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"RuntimeError: {{'Authorization': 'Bearer {SECRET}', 'pwd': '{SECRET}'}}",
        f"KeyError: 'api_key={SECRET}'",
        f"Headers([(b'cookie', b'session={SECRET}')])",
        f"could not connect to postgres://hub:{SECRET}@db.example/x",
        f"ValueError: jwt={SECRET} is over",
        f"passcode: {SECRET}",
        f"access{HYPHEN}key: {SECRET}",
        f"otp={SECRET}",
        f'{{"ssn": "{SECRET}"}}',
        f"ssn={SECRET}, name=x",
        f"{{'SSN': '{SECRET} and more'}}",
        f'ssn: "{SECRET}',
    ],
)
def test_a_cause_holds_no_credentials(text: str) -> None:
    for cause in (text, f"Traceback: x\n{text}\n\nDuring handling of the above exception, another one: {text}"):
        redacted = redacted_cause(cause, ("ssn",))
        assert SECRET not in redacted
        assert HIDDEN in redacted


def test_a_key_of_the_hub_is_in_no_cause() -> None:
    assert "k" * 20 not in redacted_cause(f"RuntimeError: mcphub_{'k' * 43} is not known")


@pytest.mark.parametrize("text", ["KeyError: 'name'", "max_tokens=5", "", "line 5, in spin", "ssn"])
def test_a_cause_without_credentials_stays(text: str) -> None:
    assert redacted_cause(text, ("ssn", "-")) == text
    assert redacted_cause(text, ("-",)) == text


# --- Time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "piece",
    ["1", "value1", "password", "\ufeff{", "[", "\\", 'password="\\', 'ssn="\\', "ssn: ", "\u0130", "://a:", "bearer "],
)
def test_the_time_that_it_takes_grows_with_the_text_and_no_faster(piece: str) -> None:
    def look(times: int) -> None:
        text = piece * times
        is_secret(text + "x")
        for_audit_log({"text": text, "pwd": 1})
        redacted_cause(text, ("ssn",))

    assert_linear(look, 500)


def test_a_secret_is_hidden_in_the_beginning_that_is_kept_of_a_long_value(settings: Any) -> None:
    settings.MCPHUB_MAX_PAYLOAD_BYTES = 60
    stored = json.loads(for_audit_log({"password": "hunter22" * 20, "rest": "x" * 500})[0])
    assert (stored["truncated"], "hunter22" in stored["head"]) == (True, False)
    plain = json.loads(for_audit_log({"first": "y" * 100, "password": "hunter22"})[0])
    assert plain["head"] == '{"first":"' + "y" * 50


@pytest.mark.parametrize("length", [0, 5000])
def test_a_secret_is_hidden_in_a_text_of_any_length(length: int) -> None:
    arguments = {"note": "x" * length, "password": SECRET}
    assert json.loads(for_audit_log(arguments)[0]) == {"note": "x" * length, "password": HIDDEN}
    assert json.loads(for_audit_log({**arguments, "ssn": SECRET}, ("s s n",))[0])["ssn"] == HIDDEN


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_what_is_too_deep_to_be_written_again_is_hidden_as_a_whole(wrap: Any) -> None:
    value: Any = {"password": SECRET, "plain": "deep inside"}
    for _ in range(240):
        value = wrap(value)
    text, _ = for_audit_log(value)
    assert SECRET not in text
    assert "deep inside" not in text
    assert HIDDEN in str(json.loads(text))


@pytest.mark.parametrize(
    "text",
    ["tax_id={}", "Tax-ID: {}", 'taxid="{} two"', "ssn='{}'", "ssn = {}", '{{"ssn": "{}"}}', "a=1, tax id: {}, b=2"],
)
def test_a_cause_hides_what_follows_any_of_the_tenants_own_names(text: str) -> None:
    # A name without letters is ignored, and does not disable redaction.
    shown = redacted_cause("plain=stays " + text.format(SECRET), ("tax id", "---", "ssn"))
    assert SECRET not in shown
    assert HIDDEN in shown
    assert "plain=stays" in shown
