"""URI templates: what each expression stands for, and what no value may be."""

import pytest

from tools_app.execution.offers import uris
from tools_app.execution.offers.uris import LONGEST_URI, BadTemplate


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
    assert uris.parse(template).match(uri) == expected


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
    assert uris.parse("docs://{page}").match(f"docs://{encoded}") == {"page": value}


@pytest.mark.shows("resources.paths")
@pytest.mark.parametrize(
    "value",
    ["..", ".", "../a", "a/..", "a/../b", "./a", "a/.", "/a", "//a", "..\\a", "a\\..", "\\a", "a\x00", "\x00"],
)
@pytest.mark.parametrize("template", ["docs://{page}", "docs://x/{+page}"])
def test_no_value_leads_out_of_its_place(template: str, value: str) -> None:
    encoded = "".join(f"%{byte:02X}" for byte in value.encode())
    prefix = template.partition("{")[0]
    assert uris.parse(template).match(prefix + encoded) is None


@pytest.mark.parametrize("value", ["...", "..a", "a..", "a..b", ".hidden", "a/.hidden/..b", "a/", "a//b"])
def test_dots_and_slashes_that_lead_nowhere_else_are_names(value: str) -> None:
    assert uris.parse("docs://x/{+path}").match(f"docs://x/{value}") == {"path": value}


def test_a_path_right_after_the_scheme_may_be_absolute() -> None:
    assert uris.parse("file://{+path}").match("file:///etc/hosts") == {"path": "/etc/hosts"}
    assert uris.parse("file://{+path}").match("file:///etc/../hosts") is None
    assert uris.parse("file:///{+path}").match("file:////etc/hosts") is None


def test_a_uri_that_is_too_long_is_none() -> None:
    template = uris.parse("docs://{page}")
    longest = "docs://" + "a" * (LONGEST_URI - len("docs://"))
    assert template.match(longest) is not None
    assert template.match(longest + "a") is None


@pytest.mark.parametrize("template", ["docs://guide", "docs://{a}/{+b}"])
def test_a_template_knows_its_variables_in_their_order(template: str) -> None:
    parsed = uris.parse(template)
    assert parsed.template == template
    assert parsed.variables == (("a", "b") if "{" in template else ())
    assert uris.is_template(template) is bool(parsed.variables)


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
        uris.parse(template)
