"""URI templates: expressions, and values that are rejected."""

import re
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.linear import assert_linear
from tools_app.catalog import uri_templates
from tools_app.catalog.uri_templates import MAX_TEMPLATE_LENGTH, MAX_URI, MAX_VARIABLES, BadTemplate


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("docs://guide", "docs://guide", {}),
        ("docs://guide", "docs://guide2", None),
        ("docs://a.b", "docs://aXb", None),
        ("docs://{page}", "docs://intro", {"page": "intro"}),
        ("docs://{page}", "docs://", None),
        ("docs://{page}", "docs://a/b", None),
        ("docs://{page}", "docs://a?b", None),
        ("docs://{page}", "docs://a#b", None),
        ("docs://{page}", "DOCS://a", None),
        ("docs://{page}", "x docs://a", None),
        ("docs://{page}/end", "docs://a/end", {"page": "a"}),
        ("docs://{page}/end", "docs://a/end/", None),
        ("docs://{a}-{b}", "docs://1-2", {"a": "1", "b": "2"}),
        ("docs://{a}-{b}", "docs://1-2-3", {"a": "1-2", "b": "3"}),
        ("docs://{_a1}?q={B}", "docs://x?q=y", {"_a1": "x", "B": "y"}),
        ("repo://{owner}/{+path}", "repo://ada/src/main.py", {"owner": "ada", "path": "src/main.py"}),
        ("repo://{owner}/{+path}", "repo://ada/a?b#c", {"owner": "ada", "path": "a?b#c"}),
        ("repo://{owner}/{+path}", "repo://ada", None),
        ("repo://{owner}/{+path}", "repo://ada/", None),
        ("repo://{+path}/end", "repo://a/end/b/end", {"path": "a/end/b"}),
    ],
)
def test_a_template_stands_for_a_uri_or_does_not(template: str, uri: str, expected: dict[str, str] | None) -> None:
    assert uri_templates.parse(template).match(uri) == expected


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("two%20words", "two words"),
        ("%C3%A4", "ä"),
        ("a%2Fb", "a/b"),
        ("100%25", "100%"),
        ("%2541", "%41"),
        ("a+b", "a+b"),
        ("%zz", "%zz"),
        ("%ff", "\ufffd"),
    ],
)
def test_values_are_decoded_once(encoded: str, value: str) -> None:
    assert uri_templates.parse("docs://{page}").match(f"docs://{encoded}") == {"page": value}


@pytest.mark.shows("resources.paths")
@pytest.mark.parametrize(
    "value",
    ["..", ".", "../a", "a/..", "a/../b", "./a", "a/.", "/a", "//a", "..\\a", "a\\..", "\\a", "a\x00", "\x00"],
)
@pytest.mark.parametrize("template", ["docs://{page}", "docs://x/{+page}"])
def test_no_value_leads_out_of_its_place(template: str, value: str) -> None:
    encoded = "".join(f"%{byte:02X}" for byte in value.encode())
    prefix = template.partition("{")[0]
    assert uri_templates.parse(template).match(prefix + encoded) is None


@pytest.mark.parametrize("value", ["...", "..a", "a..", "a..b", ".hidden", "a/.hidden/..b", "a/", "a//b"])
def test_dots_and_slashes_that_lead_nowhere_else_are_names(value: str) -> None:
    assert uri_templates.parse("docs://x/{+path}").match(f"docs://x/{value}") == {"path": value}


def test_a_path_right_after_the_scheme_may_be_absolute() -> None:
    assert uri_templates.parse("file://{+path}").match("file:///etc/hosts") == {"path": "/etc/hosts"}
    assert uri_templates.parse("file://{+path}").match("file:///etc/../hosts") is None
    assert uri_templates.parse("file:///{+path}").match("file:////etc/hosts") is None


def test_a_uri_that_is_too_long_is_none() -> None:
    template = uri_templates.parse("docs://{page}")
    longest = "docs://" + "a" * (MAX_URI - len("docs://"))
    assert template.match(longest) is not None
    assert template.match(longest + "a") is None


@pytest.mark.parametrize("template", ["docs://guide", "docs://{a}/{+b}"])
def test_a_template_knows_its_variables_in_their_order(template: str) -> None:
    parsed = uri_templates.parse(template)
    assert parsed.template == template
    assert parsed.variables == (("a", "b") if "{" in template else ())
    assert uri_templates.is_template(template) is bool(parsed.variables)


@pytest.mark.parametrize(
    "template",
    [
        "docs://{",
        "docs://}",
        "docs://{}",
        "docs://{1a}",
        "docs://{a b}",
        "docs://{a-b}",
        "docs://{?q}",
        "docs://{a*}",
        "docs://{a,b}",
        "docs://{#a}",
        "docs://{/a}",
        "docs://{a:3}",
        "docs://{{a}}",
        "docs://{a}/{a}",
        "x://{a}{+a}",
        "docs://\x00",
        "docs://{a}\x7f",
    ],
)
def test_what_is_no_template_is_refused(template: str) -> None:
    with pytest.raises(BadTemplate):
        uri_templates.parse(template)


def reference(template: str) -> re.Pattern[str]:
    """The template as a regular expression with groups: a reference implementation of matching."""
    pieces = uri_templates.EXPRESSION.split(template)
    pattern = re.escape(pieces[0])
    for plus, name, literal in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        pattern += f"(?P<{name}>{'.+' if plus else '[^/?#]+'}){re.escape(literal)}"
    return re.compile(pattern)


TEXTS = st.text("ab/\n%é€😀", max_size=4)
URIS = st.text("ab/\n%é€😀", max_size=12)


@st.composite
def templates(draw: st.DrawFn) -> str:
    pluses = draw(st.lists(st.booleans(), max_size=5))
    written = draw(TEXTS.filter(str.isprintable))
    for position, plus in enumerate(pluses):
        written += f"{{{'+' * plus}v{position}}}" + draw(TEXTS.filter(str.isprintable))
    return written


@pytest.mark.slow
@settings(derandomize=True, database=None, max_examples=200, deadline=None)
@given(templates(), st.data())
def test_variables_take_what_a_greedy_regular_expression_gives_them(template: str, data: st.DataObject) -> None:
    filled = uri_templates.EXPRESSION.sub(lambda _: data.draw(TEXTS.filter(bool)), template)
    for uri in (filled, data.draw(URIS)):
        found = reference(template).fullmatch(uri)
        expected = found.groupdict() if found else None
        if expected is not None and any(leads_out(template, name, unquote(text)) for name, text in expected.items()):
            expected = None
        assert uri_templates.parse(template).match(uri) == (expected and {k: unquote(v) for k, v in expected.items()})


def leads_out(template: str, name: str, value: str) -> bool:
    return value.startswith("/") and f"://{{+{name}}}" not in template


MANY = MAX_VARIABLES
ATTACKS = {
    "as reported": ("x://{+a}{+b}{+c}{+d}/end", "a", "/en"),
    "many variables": ("x://" + "".join(f"{{+v{n}}}" for n in range(MANY)) + "/end", "a", "/en/end"),
    "letters between": ("x://" + "a".join(f"{{+v{n}}}" for n in range(MANY)) + "b/end", "a", "/end"),
    "letters between that match": ("x://" + "a".join(f"{{+v{n}}}" for n in range(MANY)) + "/end", "a", "/end"),
    "two kinds": ("x://" + "/".join(f"{{+v{n}}}{{w{n}}}" for n in range(MANY // 2)) + "b/end", "a/", "/end"),
    "a long literal": ("x://{+a}" + "a" * 450 + "b{+c}a/end", "a", "/end"),
    "letters of two bytes": ("x://{+a}" + "é" * 450 + "b{+c}é/end", "é", "/end"),
}


@pytest.mark.parametrize(("template", "filler", "end"), ATTACKS.values(), ids=ATTACKS.keys())
def test_no_template_takes_longer_than_in_proportion_to_the_uri(template: str, filler: str, end: str) -> None:
    parsed = uri_templates.parse(template)

    def work(size: int) -> None:
        parsed.match("x://" + (filler * size)[: size - 4 - len(end)] + end)

    assert_linear(work, MAX_URI // 4)


def test_a_template_has_a_bounded_number_of_variables() -> None:
    assert uri_templates.parse("x:" + "".join(f"{{v{number}}}-" for number in range(MAX_VARIABLES))).variables
    with pytest.raises(BadTemplate, match="at most 16 variables, not 17"):
        uri_templates.parse("x:" + "".join(f"{{v{number}}}-" for number in range(MAX_VARIABLES + 1)))


def test_a_template_has_a_bounded_length() -> None:
    assert uri_templates.parse("x:{a}" + "b" * (MAX_TEMPLATE_LENGTH - 5)).variables == ("a",)
    with pytest.raises(BadTemplate, match="at most 500 characters"):
        uri_templates.parse("x:{a}" + "b" * (MAX_TEMPLATE_LENGTH - 4))
