"""Concurrent edits of one row in the admin: nothing is overwritten that the second user has not seen."""

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.forms import ModelMultipleChoiceField
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.worlds import HTTP_TOOL
from tools_app.models import AlertDestination, Membership, Resource, ResourceKind, Tool
from tools_app.web.admin.conflicts import OPENED, TAKE


def opened(client: Any, address: str) -> dict[str, Any]:
    """The form data of a form that is opened and saved unchanged."""
    response = client.get(address)
    form = response.context["adminform"].form
    data: dict[str, Any] = {OPENED: hidden(response)}
    for bound in form:
        value, widget = bound.value(), bound.field.widget
        names = widget.decompress(value) if hasattr(widget, "decompress") else None
        if names is not None:
            data |= {f"{bound.html_name}_{place}": str(part or "") for place, part in enumerate(names)}
        elif isinstance(bound.field, ModelMultipleChoiceField):
            data[bound.html_name] = [str(key) for key in value]
        elif isinstance(value, bool):
            data |= {bound.html_name: "on"} if value else {}
        else:
            data[bound.html_name] = "" if value is None else str(value)
    # The tool in the tests has fewer keys in its configuration than the form stores.
    return data | {"max_response_bytes": "1000", "body_mode": "none"} if "max_response_bytes" in data else data


def hidden(response: Any) -> str:
    found = re.search(f'name="{OPENED}" value="([^"]*)"', response.content.decode())
    assert found
    return html.unescape(found[1])


def conflicts(response: Any) -> dict[str, Any]:
    assert response.status_code == 200
    return {conflict.name: conflict for conflict in response.context["adminform"].form.conflicts}


@pytest.mark.parametrize(
    ("model", "field", "mine", "theirs"),
    [
        ("tool", "description", "mine", "theirs"),
        ("tool", "path", "mine", "theirs"),
        ("tool", "input_schema", '{"type": "object"}', '{"type": "object", "title": "x"}'),
        ("resource", "text", "mine\r\nof two lines", "theirs"),
        ("prompt", "title", "mine", "theirs"),
        ("apikey", "methods", "tools/*", "resources/*"),
        ("tenant", "name", "mine", "theirs"),
        ("alertrule", "quiet_minutes", "30", "90"),
        ("alertdestination", "name", "mine", "theirs"),
    ],
)
def test_what_somebody_else_saved_meanwhile_is_not_overwritten(
    as_: Any, page: Any, acme: Any, model: str, field: str, mine: str, theirs: str
) -> None:
    first, second = as_("teammate"), as_("admin")
    row = acme.row(model)
    address = page(model, "change", row)
    form = opened(first, address)
    mine_form = opened(second, address) | {field: mine}
    assert first.post(address, form | {field: theirs}).status_code == 302
    response = second.post(address, mine_form)
    (found,) = conflicts(response).values()
    assert (found.name, found.take, found.change.person_name) == (field, "mine", "teammate")
    text = html.unescape(response.content.decode())
    assert "Somebody else changed this" in text
    assert "teammate changed it" in text
    assert mine.splitlines()[0] in text
    assert row_of(row, field) == row_of_theirs(first, address, field)


def row_of(row: Any, field: str) -> Any:
    fresh = type(row)._default_manager.get(pk=row.pk)
    return fresh.config[field] if field == "path" else getattr(fresh, field)


def row_of_theirs(client: Any, address: str, field: str) -> Any:
    return client.get(address).context["adminform"].form[field].initial


@pytest.mark.parametrize(("choice", "expected"), [("mine", "mine"), ("theirs", "theirs")])
def test_whoever_comes_second_chooses_for_each_field(
    as_: Any, page: Any, acme: Any, choice: str, expected: str
) -> None:
    first, second, address = as_("teammate"), as_("admin"), page("tool", "change", acme.tool)
    form, mine = opened(first, address), opened(second, address) | {"description": "mine", "title": "my title"}
    first.post(address, form | {"description": "theirs"})
    again = second.post(address, mine)
    assert list(conflicts(again)) == ["description"]
    chosen = mine | {OPENED: hidden(again), f"{TAKE}description": choice}
    assert second.post(address, chosen).status_code == 302
    acme.tool.refresh_from_db()
    assert (acme.tool.description, acme.tool.title) == (expected, "my title")


def test_a_choice_survives_another_error_and_a_third_change_asks_again(as_: Any, page: Any, acme: Any) -> None:
    first, second, address = as_("teammate"), as_("admin"), page("tool", "change", acme.tool)
    form, mine = opened(first, address), opened(second, address) | {"description": "mine"}
    first.post(address, form | {"description": "theirs"})
    again = second.post(address, mine)
    chosen = mine | {OPENED: hidden(again), f"{TAKE}description": "theirs"}
    wrong = second.post(address, chosen | {"input_schema": "{"})
    found = conflicts(wrong)["description"]
    assert (found.take, found.mine, found.theirs) == ("theirs", "mine", "theirs")
    first.post(address, opened(first, address) | {"description": "third"})
    late = second.post(address, chosen)
    assert conflicts(late)["description"].theirs == "third"
    acme.tool.refresh_from_db()
    assert acme.tool.description == "third"


def test_a_field_that_was_left_alone_is_theirs_unless_one_says_otherwise(as_: Any, page: Any, acme: Any) -> None:
    first, second, address = as_("teammate"), as_("admin"), page("tool", "change", acme.tool)
    form, mine = opened(first, address), opened(second, address) | {"title": "mine"}
    first.post(address, form | {"description": "theirs"})
    assert conflicts(second.post(address, mine))["description"].take == "theirs"


def test_the_same_change_made_twice_and_a_change_of_other_rows_are_no_conflict(as_: Any, page: Any, acme: Any) -> None:
    first, second, address = as_("teammate"), as_("admin"), page("tool", "change", acme.tool)
    form, same = opened(first, address), opened(second, address) | {"description": "same"}
    Tool.objects.create(tenant=acme.tenant, name="other", **HTTP_TOOL)
    assert first.post(address, form | {"description": "same"}).status_code == 302
    assert second.post(address, same).status_code == 302


def test_the_role_of_a_member_is_not_given_twice(as_: Any, page: Any, acme: Any) -> None:
    first, second, address = as_("teammate"), as_("admin"), page("membership", "change", acme.membership)
    member = acme.membership
    form, mine = opened(first, address), opened(second, address) | {"role": "admin"}
    first.post(address, form | {"role": "operator"})
    found = conflicts(second.post(address, mine))["role"]
    assert (found.mine, found.theirs) == ("Admin", "Operator")
    assert Membership.objects.get(pk=member.pk).role == "operator"


def test_a_secret_that_was_replaced_meanwhile_is_typed_again_and_never_shown(as_: Any, page: Any, acme: Any) -> None:
    first, second, address = as_("teammate"), as_("admin"), page("secret", "change", acme.secret)
    form, mine = opened(first, address), opened(second, address)
    first.post(address, form | {"value": "their-hush"})
    again = second.post(address, mine | {"value": "my-hush"})
    found = conflicts(again)["value"]
    assert (found.mine, found.theirs, found.change.person_name) == (None, "", "teammate")
    assert "hush" not in again.content.decode()
    assert second.post(address, {OPENED: hidden(again), "value": "my-hush"}).status_code == 302


def test_a_file_that_was_replaced_meanwhile_is_not_overwritten(as_: Any, page: Any, acme: Any) -> None:
    row = Resource.objects.create(
        tenant=acme.tenant, uri="docs://acme/file", name="file", kind=ResourceKind.FILE, blob=b"x", mime_type="a/b"
    )
    first, second, address = as_("teammate"), as_("admin"), page("resource", "change", row)
    form, mine = opened(first, address), opened(second, address)
    first.post(address, form | {"upload": SimpleUploadedFile("f", b"theirs")})
    again = second.post(address, mine | {"upload": SimpleUploadedFile("f", b"mine")})
    assert conflicts(again)["upload"].mine is None
    assert bytes(Resource.objects.get(pk=row.pk).blob) == b"theirs"


def test_the_destinations_of_a_rule_are_compared_by_name(as_: Any, page: Any, acme: Any) -> None:
    mail, chat = (
        AlertDestination.objects.create(tenant=acme.tenant, name=name, kind="email", email="a@example.com")
        for name in ("mail", "chat")
    )
    rule = acme.alertrule
    first, second, address = as_("teammate"), as_("admin"), page("alertrule", "change", rule)
    form, mine = opened(first, address), opened(second, address)
    assert first.post(address, form | {"destinations": [str(mail.pk), str(chat.pk)]}).status_code == 302
    assert [row.name for row in rule.destinations.all()] == ["chat", "mail"]
    untouched = conflicts(second.post(address, mine | {"quiet_minutes": "90"}))["destinations"]
    assert (untouched.mine, untouched.theirs, untouched.take) == ("acme hook", "chat, mail", "theirs")
    again = second.post(address, mine | {"destinations": [str(mail.pk)]})
    found = conflicts(again)["destinations"]
    assert (found.mine, found.theirs, found.take) == ("mail", "chat, mail", "mine")
    assert found.change.person_name == "teammate"
    chosen = mine | {"destinations": [str(mail.pk)], OPENED: hidden(again)}
    assert second.post(address, chosen | {f"{TAKE}destinations": "theirs", "quiet_minutes": "90"}).status_code == 302
    rule.refresh_from_db()
    assert (rule.quiet_minutes, rule.destinations.count()) == (90, 2)
    assert second.post(address, opened(second, address) | {"destinations": []}).status_code == 302
    assert not rule.destinations.exists()


@pytest.mark.parametrize("sent", ["", "{", "[]", "x" * 10_000])
def test_what_no_form_sends_does_no_harm(as_: Any, page: Any, acme: Any, sent: str) -> None:
    client, address = as_("admin"), page("tool", "change", acme.tool)
    assert client.post(address, opened(client, address) | {OPENED: sent, "title": "new"}).status_code == 302


def test_the_access_of_a_connection_is_changed_by_one_tab_at_a_time(as_: Any, page: Any, acme: Any) -> None:
    first, second = as_("teammate"), as_("admin")
    row = acme.row("connection")
    address = page("connection", "change_access", row)

    def form_of(client: Any) -> dict[str, Any]:
        response = client.get(address)
        form = response.context["form"]
        values = {bound.html_name: bound.value() for bound in form}
        fields = {name: "\n".join(value) if isinstance(value, list) else value for name, value in values.items()}
        return {OPENED: hidden(response)} | {
            name: "" if value is None else str(value) for name, value in fields.items()
        }

    theirs, mine = form_of(first), form_of(second)
    assert first.post(address, theirs | {"calls_per_minute": "7"}).status_code == 302
    response = second.post(address, mine | {"calls_per_minute": "9", "calls_per_day": "100"})
    (found,) = response.context["form"].conflicts
    assert (found.name, found.mine, found.theirs, found.take) == ("calls_per_minute", "9", "7", "mine")
    assert found.change.person_name == "teammate"
    text = html.unescape(response.content.decode())
    assert "Somebody else changed this connection while you edited it" in text
    assert "teammate changed it" in text
    row.key.refresh_from_db()
    assert (row.key.calls_per_minute, row.key.calls_per_day) == (7, None)

    chosen = mine | {OPENED: hidden(response), "calls_per_minute": "9", "calls_per_day": "100"}
    assert second.post(address, chosen | {f"{TAKE}calls_per_minute": "theirs"}).status_code == 302
    row.key.refresh_from_db()
    assert (row.key.calls_per_minute, row.key.calls_per_day) == (7, 100)


def test_an_account_that_was_deactivated_meanwhile_stays_so(as_: Any, page: Any, people: Any) -> None:
    client, address = as_("superuser"), page("user", "change", people["operator"])
    mine = opened(client, address) | {"email": "new@example.com"}
    assert client.post(address, {key: value for key, value in opened(client, address).items() if key != "is_active"})
    response = client.post(address, mine)
    assert list(conflicts(response)) == ["is_active"]
    people["operator"].refresh_from_db()
    assert (people["operator"].is_active, people["operator"].email) == (False, "operator@example.com")


def test_saving_an_account_writes_only_what_was_changed(as_: Any, page: Any, people: Any) -> None:
    client, address = as_("superuser"), page("user", "change", people["operator"])
    form = opened(client, address) | {"email": "new@example.com"}
    with CaptureQueriesContext(connection) as queries:
        assert client.post(address, form).status_code == 302
    (update,) = [query["sql"] for query in queries if query["sql"].startswith('UPDATE "auth_user"')]
    assert re.findall(r'"(\w+)" = ', update.partition("WHERE")[0]) == ["email"]


@pytest.mark.parametrize("view", ["change", "password_change"])
def test_an_account_is_read_under_the_lock(as_: Any, page: Any, people: Any, while_waiting: Any, view: str) -> None:
    """A deactivation that the page waited for is not undone."""
    account = User.objects.filter(pk=people["operator"].pk)
    client, address = as_("superuser"), reverse(f"admin:auth_user_{view}", args=[people["operator"].pk])
    if view == "change":
        form = opened(client, address) | {"email": "new@example.com"}
    else:
        form = {"password1": "correct horse battery", "password2": "correct horse battery"}
    while_waiting(lambda: account.update(is_active=False))
    client.post(address, form)
    assert not account.get().is_active
