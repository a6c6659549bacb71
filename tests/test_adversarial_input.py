"""Parsing, comparing and searching external text takes linear time, for adversarial input, too.

Each entry is work on a text of a given length that is the worst case for its code. Code that is not listed has a small
bound on its input's length, or reads no external text.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.linear import assert_linear
from tools_app.audit.recorder import redaction
from tools_app.audit.search.query import expression
from tools_app.catalog.completion import among
from tools_app.catalog.kinds import templates
from tools_app.catalog.skills import InvalidManifest, frontmatter
from tools_app.catalog.stored import PLACEHOLDER
from tools_app.catalog.validation import mime_types, shapes
from tools_app.core.http import urls
from tools_app.core.telemetry import scrubbing
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.identity import patterns
from tools_app.protocol import inbound
from tools_app.tenant_config import reader
from tools_app.transport import handler
from tools_app.web.admin import json_source

Work = Callable[[int], object]
STARS = "*a*a*a*a*b"


def whatever(work: Work) -> Work:
    """Do the work; the text may be rejected, because only the time counts."""

    def tried(size: int) -> None:
        try:
            work(size)
        except ValueError:
            return

    return tried


def text(piece: str, size: int, end: str = "") -> str:
    return (piece * (size // len(piece) + 1))[: size - len(end)] + end


def arguments(count: int) -> list[dict[str, Any]]:
    return [{"name": f"a{number}"} for number in range(count)]


def messages(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "text": "".join(f"{{a{number}}}" for number in range(count))}]


SPELLINGS = ["a" * 200 + str(number) for number in range(20)]
LOGGED = [
    "password=",
    "password",
    "password , '",
    'password="\\',
    "://a:",
    "a://b:",
    "bearer a",
    "\\",
    "'",
    "mcphubt_",
    "a",
]
WORK: dict[str, tuple[int, Work]] = {
    **{
        f"log line of {piece!r}": (5_000, lambda n, piece=piece: scrubbing.scrubbed(text(piece, n))) for piece in LOGGED
    },
    **{
        f"cause of {piece!r}": (5_000, lambda n, piece=piece: redaction.redacted_cause(text(piece, n)))
        for piece in LOGGED
    },
    "cause with keys of the tenant": (
        5_000,
        lambda n: redaction.redacted_cause(text("own key ", n), ("own key", "own")),
    ),
    "name of a field": (20_000, lambda n: redaction.is_secret(text("a-", n))),
    "secrets in an answer": (20_000, lambda n: Scrubber(SPELLINGS).text(text("a", n))),
    "name pattern of a key": (20_000, lambda n: patterns.matches(text("a", n), [STARS])),
    "search with stars": (20_000, lambda n: re.search(expression(STARS, backtracks=True), text("a", n))),
    "Accept of commas": (20_000, lambda n: inbound.accepted(text("a/b;q=1,", n))),
    "Accept of parameters": (20_000, lambda n: inbound.accepted(text("a/b;", n))),
    "Host": (20_000, lambda n: handler._is_allowed_host(text("[:", n), ("a",))),
    "Origin": (20_000, lambda n: handler.parse_origin("http://" + text("a@", n))),
    "URL": (20_000, lambda n: urls.parse_url("http://" + text("a.", n))),
    "URL of percent signs": (20_000, lambda n: urls.has_parent_segments(text("%25", n))),
    "template of a request": (20_000, lambda n: templates.parse(text("{secret:", n))),
    "template of braces": (20_000, lambda n: templates.parse(text("}", n))),
    "placeholders of a prompt": (20_000, lambda n: PLACEHOLDER.findall(text("{a", n))),
    "arguments of a prompt": (3_000, lambda n: shapes.check_prompt_arguments(arguments(n))),
    "placeholders and arguments": (
        3_000,
        lambda n: shapes.check_prompt_messages(messages(n), [f"b{k}" for k in range(n)]),
    ),
    "completion": (5_000, lambda n: among([f"{'b' * (k % 2)}a{k}" for k in range(n)])("a", {})),
    "JSON in a form": (20_000, lambda n: json_source.parse(text("\\", n))),
    "MIME type": (20_000, lambda n: mime_types.mime_type_fault(text("a/b;a=", n))),
    "icon": (20_000, lambda n: shapes.check_icons([{"src": text("https://", n)}])),
    "YAML of brackets": (2_000, lambda n: reader.parse("[" * 60 + text("a, ", n))),
    "YAML of names": (2_000, lambda n: reader.parse("".join(f"a{k}: 1\n" for k in range(n // 4)))),
    "head of a skill": (2_000, lambda n: frontmatter(f"---\n{text('- - ', n)}\n---", "skill://a/SKILL.md")),
}


@pytest.mark.parametrize(("size", "work"), WORK.values(), ids=WORK.keys())
def test_outside_text_takes_time_in_proportion_to_its_length(size: int, work: Work) -> None:
    assert_linear(whatever(work), size)


def test_references_in_the_head_of_a_skill_do_not_multiply() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 30))]
    with pytest.raises(InvalidManifest, match=r"Line 3: \*a0 is an alias"):
        frontmatter("\n".join(["---", "name: a", *lines, "---"]), "skill://a/SKILL.md")


def test_the_head_of_a_skill_has_a_bounded_length() -> None:
    with pytest.raises(InvalidManifest, match="more than 16384 characters"):
        frontmatter("---\nname: a\ndescription: " + "x" * 17_000 + "\n---", "skill://a/SKILL.md")


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("find", ["find"], ["find2", "afind"]),
        ("*", ["", "a"], []),
        ("a*", ["a", "ab"], ["ba"]),
        ("*a*b*", ["ab", "xaxbx", "aab"], ["ba", "a"]),
        ("a*a", ["aa", "aba"], ["a", "ab"]),
        ("*ab*ab", ["abab", "abxab", "ababab"], ["ab", "xab"]),
        ("a.*b", ["a.b", "a.xb"], ["axb"]),
    ],
)
@pytest.mark.parametrize("backtracks", [False, True])
def test_a_pattern_with_stars_finds_the_same_whatever_the_engine(
    pattern: str, fits: list[str], does_not: list[str], backtracks: bool
) -> None:
    searched = re.compile(expression(pattern, backtracks=backtracks))
    assert [name for name in fits + does_not if searched.search(name)] == fits
