"""Validation of a tenant's file before the import, and its messages."""

import time

import pytest

from tools_app.tenant_config import reader
from tools_app.tenant_config.document import InvalidConfiguration, read


def read_error(text: str) -> str:
    with pytest.raises(InvalidConfiguration) as found:
        read(text)
    return str(found.value)


def test_a_file_that_says_nothing_is_sound() -> None:
    configuration = read("mcphub: 1")
    assert (configuration.tenant, configuration.secrets, configuration.sections["tools"]) == ({}, None, None)


@pytest.mark.parametrize("text", ["", "[]", "tenant: {}", "mcphub: 2", "just words"])
def test_a_file_that_does_not_begin_as_it_must_is_refused(text: str) -> None:
    assert "start with `mcphub: 1`" in read_error(text)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("tols: {}", "tols: unknown field. Known fields: mcphub, tenant, secrets, api_sources, tools"),
        ("tenant: {nmae: A}", "tenant.nmae: unknown field"),
        ("tenant: {slug: other}", "tenant.slug: unknown field"),
        ("tenant: {name: 5}", "tenant.name: Must be a string"),
        ("tenant: {calls_per_day: many}", "tenant.calls_per_day: Must be a whole number."),
        ("tenant: {calls_per_day: true}", "tenant.calls_per_day: Must be a whole number."),
        ("tenant: {is_active: 1}", "tenant.is_active: Must be true or false."),
        ("tenant: {redacted_keys: {}}", "tenant.redacted_keys: Must be a list."),
        ("tenant: {redacted_keys: [!!binary AAAA]}", "tenant.redacted_keys: Must be a list."),
        ("tenant: []", "tenant: must be an object"),
        ("secrets: {A: b}", "secrets: must be a list of names"),
        ("tools: []", "tools: must be an object of at most 5000 tools by their names"),
        ("tools: {find: 1}", "tools.find: must be an object"),
        ("tools: {find: {request: {body: !!binary AAAA}}}", "tools.find: has a value that is not JSON."),
        ("alert_rules: []", "alert_rules: must be an object of at most 50 alert rules by their names"),
        ("alert_rules: {a: 1}", "alert_rules.a: must be an object with its fields"),
    ],
)
def test_a_field_that_is_wrong_is_named_with_its_path(body: str, message: str) -> None:
    assert message in read_error(f"mcphub: 1\n{body}")


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert len(read_error("mcphub: 1\ntenant: {a: 1, b: 2}\ntools: {c: 3}").splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mcphub: 1\nmcphub: 1", "Line 2: 'mcphub' is given twice."),
        ("a: &x [1]\nb: *x", "Line 2: *x is an alias"),
        ("a: {b: ", "Line 2, column 1"),
        ("a: !!python/object/apply:os.system [ls]", "Line 1"),
        ("a: !!set {b}", "is not JSON"),
        ("on: 1", "Put it in quotes"),
        ("1: 1", "Put it in quotes"),
        ("a: .nan", "is not JSON"),
        ("a: 99999999999999999999", "too large"),
        ('a: "\\0"', "cannot be stored"),
        ('"\\0": a', "cannot be stored"),
        ("a: b\n---\nc: d", "Line"),
        ("a: \x07", "The file is not valid YAML"),
        ("[" * 100 + "]" * 100, "nested deeper than 64 levels"),
        ("a: " + "x" * reader.MAX_BYTES, "larger than 8 MB"),
        ("a: " + "1:" * 100_000 + "1", "in quotes"),
        ("a: 1:30", "put '1:30' in quotes"),
        ("a: " + "1:" * 300 + "1.5", "in quotes"),
        ("? [a, b]\n: c", "a name must be a string"),
        ("a: !!timestamp x", "The file is not valid YAML"),
        ("a: !!bool maybe", "The file is not valid YAML"),
        ('a: !!int ""', "The file is not valid YAML"),
    ],
)
def test_what_no_file_needs_is_refused(text: str, message: str) -> None:
    assert message in read_error(text)


def test_a_bomb_of_aliases_goes_off_nowhere() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    began = time.thread_time()
    assert "is an alias" in read_error("\n".join(lines))
    assert time.thread_time() - began < 30


def test_a_date_stays_the_text_that_it_is() -> None:
    assert read("mcphub: 1\ntenant: {name: 2026-01-31}").tenant == {"name": "2026-01-31"}
