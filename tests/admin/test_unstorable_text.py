"""U+0000 and half of a surrogate pair in every field of every form of the admin: told or dropped, and never a failure.

The pages are those of `matrix.py`, the fields those of the forms that they show. `tests/services` runs
it on PostgreSQL.
"""

import logging
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.db import transaction

from tests.admin import test_roles
from tests.admin.matrix import PAGES, UNASKED
from tests.admin.test_roles import address

# They try every field of every form.
pytestmark = [pytest.mark.slow, pytest.mark.postgresql]
world = test_roles.world

NUL = "a\0b"
# As JSON and YAML write it, for fields of several lines. Browsers cannot send half of a surrogate pair otherwise.
WRITTEN = (
    '{"x": "a\\u0000b"}',
    '[{"a\\ud800b": "a\\udfffb"}]',
    'mcphub: 1\ntools:\n  "a\\ud800b": {function: echo}\n',
    'mcphub: 1\ntenant: {name: "a\\0b", allowed_networks: ["\\ud800"]}\n',
)
# A page that took what was sent leads on.
STORED = 302
# Who logs out, or posts a password, is nobody for the pages that follow.
ASIDE = {"logout", "login"}


class Forms(HTMLParser):
    """The fields of a page's forms, with what stands in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.lines: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in {"input", "textarea", "select"} and (name := found.get("name")):
            self.fields.setdefault(name, found.get("value") or "")
            if tag == "textarea":
                self.lines.add(name)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def refused(answer: Any) -> set[str]:
    """The names of the fields at which a page says what is wrong."""
    context = answer.context or ()
    forms = [context[name] for name in ("form", "adminform") if name in context]
    forms += [
        form for formset in (context["inline_admin_formsets"] if "adminform" in context else ()) for form in formset
    ]
    found = set()
    for form in (getattr(form, "form", form) for form in forms):
        for name in set(getattr(form, "errors", ())) & set(getattr(form, "fields", ())):
            # One of several widgets, as of a date and a time, has its own part of the name.
            parts = getattr(form.fields[name].widget, "widgets_names", [""])
            found |= {form.add_prefix(name) + part for part in parts}
    return found


def posted() -> dict[str, list[str]]:
    """The names of the pages that take something, by what they are about: making the rows takes longer than asking."""
    found: dict[str, list[str]] = {}
    for name, page in PAGES.items():
        if page.post is not None and page.post is not UNASKED and name not in ASIDE:
            found.setdefault(page.about or name.rpartition("_")[0] or "pages", []).append(name)
    return found


@pytest.mark.parametrize("about", posted())
def test_no_field_of_a_form_with_what_cannot_be_stored_is_a_failure(as_: Any, world: Any, about: str) -> None:
    for name in posted()[about]:
        send_what_cannot_be_stored(as_, world, name)


def send_what_cannot_be_stored(as_: Any, world: Any, name: str) -> None:
    """Post it to a page, in all of its fields. Raises AssertionError for an answer that is a failure."""
    page = PAGES[name]
    assert page.post is not None
    role = "superuser" if "superuser" in page.post.who else "admin"
    client = as_(role)
    client.raise_request_exception = False
    url = address(name, page, world)
    forms = Forms(client.get(url).content.decode() if page.get is not None else "")
    fields = {**forms.fields, **page.post.sent(world), "name": "x", "query": "outcome=ok", "restore": "1"}
    fields.pop("csrfmiddlewaretoken", None)

    def post(among: set[str], text: str) -> Any:
        with transaction.atomic():
            answer = client.post(url, {**fields, **dict.fromkeys(among, text)})
            transaction.set_rollback(True)
        assert answer.status_code < 500, (name, among, text, answer.status_code)
        return answer

    for text in (NUL, *WRITTEN):
        # All at once. What is refused by name hides what becomes of the others: they are sent without it.
        among = set(fields) if text == NUL else forms.lines & set(fields)
        while among and (told := refused(answer := post(among, text)) & among):
            among -= told
        # A page that does not say what was wrong is asked about each.
        if among and answer.status_code != STORED:
            for field in among:
                post({field}, text)
