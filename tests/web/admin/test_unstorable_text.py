"""U+0000 and lone surrogates in every field of every form of the admin: rejected or dropped, never a server error.

The pages are those of `matrix.py`, the fields those of their forms. `tests/services` runs this on PostgreSQL.
"""

import logging
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.db import transaction

from tests.tenants.admin import test_roles
from tests.tenants.admin.matrix import PAGES, UNASKED
from tests.tenants.admin.test_roles import address

# They submit every field of every form.
pytestmark = [pytest.mark.slow, pytest.mark.postgresql]
world = test_roles.world

NUL = "a\0b"
# Escaped in JSON and YAML, for text areas. Browsers cannot send a lone surrogate otherwise.
WRITTEN = (
    '{"x": "a\\u0000b"}',
    '[{"a\\ud800b": "a\\udfffb"}]',
    'mcphub: 1\ntools:\n  "a\\ud800b": {function: echo}\n',
    'mcphub: 1\ntenant: {name: "a\\0b", allowed_networks: ["\\ud800"]}\n',
)
# The status of a form that was saved.
STORED = 302
# Logging out, or posting a password, ends the session that the next pages need.
ASIDE = {"logout", "login"}


class Forms(HTMLParser):
    """The fields of a page's forms, with their values."""

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


def refused(response: Any) -> set[str]:
    """The names of the fields with errors."""
    context = response.context or ()
    forms = [context[name] for name in ("form", "adminform") if name in context]
    forms += [
        form for formset in (context["inline_admin_formsets"] if "adminform" in context else ()) for form in formset
    ]
    found = set()
    for form in (getattr(form, "form", form) for form in forms):
        for name in set(getattr(form, "errors", ())) & set(getattr(form, "fields", ())):
            # Each part of a multi-widget, such as date and time, has its own name.
            parts = getattr(form.fields[name].widget, "widgets_names", [""])
            found |= {form.add_prefix(name) + part for part in parts}
    return found


def posting_pages() -> dict[str, list[str]]:
    """The names of the pages that accept POST, by their model: creating the rows is slower than the requests."""
    found: dict[str, list[str]] = {}
    for name, page in PAGES.items():
        if page.post is not None and page.post is not UNASKED and name not in ASIDE:
            found.setdefault(page.about or name.rpartition("_")[0] or "pages", []).append(name)
    return found


@pytest.mark.parametrize("about", posting_pages())
def test_no_field_of_a_form_with_what_cannot_be_stored_is_a_failure(as_: Any, world: Any, about: str) -> None:
    for name in posting_pages()[about]:
        send_what_cannot_be_stored(as_, world, name)


def send_what_cannot_be_stored(as_: Any, world: Any, name: str) -> None:
    """Post such text in all fields of a page. Raises AssertionError for a server error."""
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
            response = client.post(url, {**fields, **dict.fromkeys(among, text)})
            transaction.set_rollback(True)
        assert response.status_code < 500, (name, among, text, response.status_code)
        return response

    for text in (NUL, *WRITTEN):
        # All at once. A rejected field hides how the others are handled: post those again without it.
        among = set(fields) if text == NUL else forms.lines & set(fields)
        while among and (rejected := refused(response := post(among, text)) & among):
            among -= rejected
        # If a page does not name the rejected field, post the fields one by one.
        if among and response.status_code != STORED:
            for field in among:
                post({field}, text)
