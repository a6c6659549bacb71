"""What a principal may use, and under which name its client is recorded."""

from time import process_time
from uuid import uuid4

import pytest
from django.core.exceptions import ValidationError

from tools_app.auth.principal import Principal, matches
from tools_app.models.validators import MOST_ENTRIES, validate_patterns

WHOEVER = Principal(key_id=uuid4(), tenant_id=uuid4(), tenant_slug="acme", redacted_keys=())


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("echo", ["echo"], ["echo2", "", "an echo"]),
        ("*", ["", "anything\nat all"], []),
        ("search_*", ["search_", "search_docs"], ["search", "xsearch_"]),
        ("*_docs", ["_docs", "search_docs"], ["docs", "_docs2"]),
        ("a*b*c", ["abc", "a1b2c", "abbcc"], ["ac", "acb", "ab", "abcd"]),
        ("ab*ba", ["abba", "ab-ba"], ["aba"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_a_star_stands_for_anything(pattern: str, fits: list[str], does_not: list[str]) -> None:
    assert [name for name in (*fits, *does_not) if matches(name, [pattern])] == fits


def test_no_pattern_keeps_the_process_busy() -> None:
    began = process_time()
    assert not matches("a" * 500, ["*a" * 200 + "*b"])
    assert process_time() - began < 1.0


def test_patterns_are_counted() -> None:
    validate_patterns(["a"] * MOST_ENTRIES)
    with pytest.raises(ValidationError, match="At most"):
        validate_patterns(["a"] * (MOST_ENTRIES + 1))


def test_only_a_person_is_recorded_as_the_playgrounds() -> None:
    assert WHOEVER.named("laptop") == "laptop"
    assert WHOEVER.named(" Playground (root)").startswith("client: ")
