"""The decorators of resources, prompts and completers: options, and errors when the code is loaded."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import pytest
from django.core.exceptions import ImproperlyConfigured

from tools_app.catalog import prompt_functions as prompts
from tools_app.catalog import resource_functions as resources
from tools_app.toolkit import ToolContext, completer, prompt, resource

pytestmark = pytest.mark.usefixtures("registries")


def guide() -> str:
    """Read the guide.

    With care.
    """
    return "guide"


def page(page: str) -> str:
    return page


def another(page: str) -> str:
    return page


def number(page: int) -> str:
    return str(page)


def unhinted(page) -> str:  # type: ignore[no-untyped-def] # the fault that is looked for
    return str(page)


def variadic(*page: str) -> str:
    return str(page)


def pieces(page: str) -> Iterator[str]:
    yield page


def maybe(page: str | None = None) -> str:
    return str(page)


def suggest(value: str, arguments: Mapping[str, str]) -> Iterable[str]:
    return [value]


def refused(offer: Callable[[], object], *messages: str) -> None:
    with pytest.raises(ImproperlyConfigured) as problem:
        offer()
    for message in messages:
        assert message in str(problem.value)


# --- Resources --------------------------------------------------------------------------------------------------------


def test_a_resource_is_described_by_its_function_unless_it_says_else() -> None:
    assert resource("docs://guide")(guide) is guide
    plain = resources.all_registered()["docs://guide"].definition
    assert (plain.uri, plain.name, plain.title, plain.mime_type) == ("docs://guide", "guide", "Guide", "")
    assert (plain.description, plain.annotations) == ("Read the guide.\n\nWith care.", {})
    options = {"name": "n", "title": "T", "description": "D", "mime_type": "text/x"}
    resource("docs://other", annotations={"priority": 1}, timeout=5.0, **options)(guide)
    other = resources.all_registered()["docs://other"]
    assert {name: getattr(other.definition, name) for name in options} == options
    assert (other.definition.annotations, other.timeout_seconds) == ({"priority": 1}, 5.0)


def test_a_context_is_no_variable() -> None:
    def read(page: str, context: ToolContext) -> str:
        return page

    resource("docs://{page}")(read)
    assert set(resources.all_registered()["docs://{page}"].function.parameters) == {"page"}


@pytest.mark.shows("resources.custom-scheme", "resources.uris")
@pytest.mark.parametrize(
    "uri",
    [
        "",
        "guide",
        "/guide",
        "://guide",
        "docs:",
        "1docs://guide",
        "-docs://guide",
        "do cs://guide",
        "do_cs://guide",
        "dócs://guide",
        "{scheme}://guide",
        "docs://gui de",
        "docs://guide\n",
        "docs://<guide>",
        'docs://"guide"',
        "docs://a\\b",
        "docs://a^b",
        "docs://`a`",
        "docs://\x00",
    ],
)
def test_what_is_no_uri_is_refused(uri: str) -> None:
    refused(lambda: resource(uri)(guide), repr(uri), "cannot be a resource's URI", "guide")
    assert uri not in resources.all_registered()


@pytest.mark.parametrize("uri", ["docs://{", "docs://{page", "docs://{1}", "docs://{page}/{page}", "docs://{?page}"])
def test_what_is_no_template_is_refused(uri: str) -> None:
    refused(lambda: resource(uri)(page), repr(uri), "cannot be a resource's URI")


@pytest.mark.shows("resources.custom-scheme")
@pytest.mark.parametrize("scheme", ["docs", "git", "file", "a", "x-y.z+1", "HTTP2"])
def test_a_scheme_is_letters_digits_plus_hyphen_and_dot(scheme: str) -> None:
    resource(f"{scheme}://guide")(guide)
    assert f"{scheme}://guide" in resources.all_registered()


@pytest.mark.parametrize(
    ("uri", "function"), [("docs://{page}", guide), ("docs://guide", page), ("docs://{shelf}/{page}", page)]
)
def test_the_parameters_are_the_variables(uri: str, function: Callable[..., Any]) -> None:
    refused(lambda: resource(uri)(function), "the parameters", "the variables of")


@pytest.mark.parametrize("function", [number, maybe, unhinted, variadic, pieces])
def test_a_resource_takes_texts_and_returns_at_once(function: Callable[..., Any]) -> None:
    refused(lambda: resource("docs://{page}")(function), function.__name__)


def test_two_functions_cannot_have_one_uri_but_a_module_may_be_loaded_again() -> None:
    resource("docs://{page}")(page)
    refused(lambda: resource("docs://{page}")(another), "Two resources have the URI 'docs://{page}'", "another")
    resource("docs://{page}")(page)


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_a_resource_has_time(timeout: float) -> None:
    refused(lambda: resource("docs://guide", timeout=timeout)(guide), "time limit must be greater than zero")


# --- Prompts ----------------------------------------------------------------------------------------------------------


def test_a_prompt_is_described_by_its_function_unless_it_says_else() -> None:
    def review(code: str, tone: Literal["kind", "stern"] = "kind", context: ToolContext | None = None) -> str:
        """Review some code.

        :param code: What to review.
        """
        return f"{code} {tone}"

    assert prompt(review) is review
    plain = prompts.all_registered()["review"].definition
    assert (plain.name, plain.title, plain.description) == ("review", "Review", "Review some code.")
    assert [(one.name, one.description, one.required) for one in plain.arguments] == [
        ("code", "What to review.", True),
        ("tone", "", False),
    ]
    prompt(name="code/review", title="R")(review)
    assert prompts.all_registered()["code/review"].definition.title == "R"


@pytest.mark.parametrize("name", ["two words", "a\n", "ä", "a,b", "x" * 129])
def test_what_is_no_name_is_refused(name: str) -> None:
    refused(lambda: prompt(name=name)(guide), repr(name), "cannot be a prompt's name")
    assert name not in prompts.all_registered()


@pytest.mark.parametrize("function", [number, maybe, unhinted, variadic, pieces])
def test_a_prompt_takes_texts_and_returns_at_once(function: Callable[..., Any]) -> None:
    refused(lambda: prompt(function), function.__name__)


def test_two_functions_cannot_have_one_name_but_a_module_may_be_loaded_again() -> None:
    prompt(name="read")(page)
    refused(lambda: prompt(name="read")(another), "Two prompts are named 'read'", "another")
    prompt(name="read")(page)


# --- Completers -------------------------------------------------------------------------------------------------------


def test_one_completer_serves_a_prompt_and_a_resource_of_the_same_function() -> None:
    prompt(page)
    resource("docs://{page}")(page)
    assert completer(page, "page")(suggest) is suggest
    assert prompts.all_registered()["page"].function.completers == {"page": suggest}
    assert resources.all_registered()["docs://{page}"].function.completers == {"page": suggest}


def test_a_completer_stands_above_the_values_of_a_hint() -> None:
    def pick(one: Literal["a", "b"]) -> str:
        return one

    prompt(pick)
    assert prompts.all_registered()["pick"].function.completers.keys() == {"one"}
    completer(pick, "one")(suggest)
    assert prompts.all_registered()["pick"].function.completers == {"one": suggest}


def test_a_completer_needs_a_prompt_or_a_resource() -> None:
    refused(lambda: completer(guide, "page"), "is neither a registered prompt")


@pytest.mark.parametrize("argument", ["shelf", "", "context"])
def test_a_completer_needs_an_argument_that_is_there(argument: str) -> None:
    def read(page: str, context: ToolContext) -> str:
        return page

    prompt(read)
    refused(lambda: completer(read, argument)(suggest), repr(argument), "to complete")
