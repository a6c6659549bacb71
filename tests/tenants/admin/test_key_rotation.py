"""Keys with restrictions, rotation with an overlap, and expiry: their pages and commands."""

import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.tenants.admin.test_keys import issue, shown_key
from tools_app.methods import areas
from tools_app.models import Action, ApiKey, Change, Tool
from tools_app.tenants import keys

DAY = timedelta(days=1)
SCOPES = {"tool_patterns": ["acme_*"], "methods": ["tools/*"], "networks": ["192.0.2.0/24"]}


def change(row: ApiKey, **fields: Any) -> ApiKey:
    ApiKey.objects.filter(pk=row.pk).update(**fields)
    row.refresh_from_db()
    return row


def is_valid(row: ApiKey) -> bool:
    return keys.valid_keys(ApiKey.objects.filter(pk=row.pk)).exists()


# --- Scopes on the page -----------------------------------------------------------------------------------------------


def test_scopes_are_typed_one_a_line(as_: Any, page: Any, acme: Any) -> None:
    scopes = {
        "tool_patterns": " acme_* \n\ndocs://acme/*\nacme_*",
        "methods": "tools/*\r\nresources/read",
        "networks": "192.0.2.0/24\n2001:db8::/32\n203.0.113.7",
    }
    issue(as_("admin"), page, acme.tenant, **scopes)
    row = ApiKey.objects.get(name="CI robot")
    assert row.tool_patterns == ["acme_*", "docs://acme/*"]
    assert row.methods == ["tools/*", "resources/read"]
    assert row.networks == ["192.0.2.0/24", "2001:db8::/32", "203.0.113.7"]
    shown = as_("admin").get(page("apikey", "change", row)).content.decode()
    assert "acme_*\ndocs://acme/*</textarea>" in shown


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tool_patterns", "echo\nno spaces", "Line 2: use only characters of a name or URI"),
        ("methods", "tools/*\n\ntool/*", "Line 3: the hub has no method tool/*"),
        ("networks", "10.0.0.1/8", "Line 1: 10.0.0.1/8 has bits set outside of its network: write 10.0.0.0/8."),
        ("networks", "192.0.2.0/24\nhome", "Line 2: home is no network"),
        ("tool_patterns", "\n".join(map(str, range(201))), "At most 200 entries that do not begin with tool="),
        ("tool_patterns", '["echo", 1]', "Enter one per line"),
    ],
)
def test_a_line_that_is_not_good_is_named(as_: Any, page: Any, acme: Any, field: str, value: str, message: str) -> None:
    response = issue(as_("admin"), page, acme.tenant, **{field: value})
    assert message in response.content.decode()
    assert not ApiKey.objects.filter(name="CI robot").exists()


def test_every_method_of_the_hub_can_be_named() -> None:
    for name in ("tools/call", "resources/directory/read", "subscriptions/listen", "tasks/*"):
        areas.check_method(name)
    with pytest.raises(ValidationError, match="no method initialize"):
        areas.check_method("initialize")


def preview(client: Any, tenant: Any, patterns: str) -> Any:
    return client.post("/admin/tools_app/apikey/preview/", {"tenant": tenant.pk, "patterns": patterns})


def test_a_preview_says_what_patterns_name(as_: Any, acme: Any) -> None:
    Tool.objects.create(tenant=acme.tenant, name="other", kind="http", description="x")
    client = as_("admin")
    text = preview(client, acme.tenant, "acme_find\nacme_g*").json()["text"]
    expected = "1 of 2 tools (acme_find); none of 1 resource; 1 of 1 prompt (acme_greet)"
    assert text == f"This key can use {expected}."
    assert "2 of 2 tools" in preview(client, acme.tenant, "").json()["text"]
    assert "Line 1" in preview(client, acme.tenant, "no spaces").json()["text"]


@pytest.mark.parametrize(("role", "status"), [("auditor", 403), ("stranger", 404), ("anonymous", 302)])
def test_a_preview_is_for_those_who_run_the_tenant(as_: Any, acme: Any, role: str, status: int) -> None:
    assert preview(as_(role), acme.tenant, "").status_code == status


def test_the_page_of_a_key_says_what_it_gets(as_: Any, page: Any, acme: Any) -> None:
    change(acme.apikey, tool_patterns=["nothing"])
    shown = as_("auditor").get(page("apikey", "change", acme.apikey)).content.decode()
    assert "none of 1 tool" in shown


# --- Expiry -----------------------------------------------------------------------------------------------------------


def test_keys_that_expire_soon_are_marked_listed_and_noted(as_: Any, page: Any, acme: Any) -> None:
    soon = timezone.now() + timedelta(days=3, hours=1)
    row, _ = keys.issue(acme.tenant, "short", expires_at=soon)
    keys.issue(acme.tenant, "long", expires_at=soon + 30 * DAY)
    client = as_("admin")
    assert "Expires in 3 days" in client.get(page("apikey", "changelist")).content.decode()
    listed = client.get(page("apikey", "changelist"), {"status": "soon"}).context["cl"].queryset
    assert [key.name for key in listed] == ["short"]
    assert "Rotate it" in client.get(page("apikey", "change", row)).content.decode()


# --- Rotation ---------------------------------------------------------------------------------------------------------


def test_a_key_that_was_narrowed_meanwhile_hands_on_what_is_left(acme: Any) -> None:
    stale, _ = keys.issue(acme.tenant, "robot")
    ApiKey.objects.filter(pk=stale.pk).update(methods=["tools/*"], networks=["192.0.2.0/24"])
    new, _ = keys.rotate(stale, DAY)
    assert (new.methods, new.networks) == (["tools/*"], ["192.0.2.0/24"])


def revoked(row: ApiKey) -> None:
    keys.revoke(row)


def expired(row: ApiKey) -> None:
    change(row, expires_at=timezone.now() - DAY)


def replaced(row: ApiKey) -> None:
    keys.rotate(row, DAY)


@pytest.mark.parametrize("end", [revoked, expired, replaced])
def test_only_a_good_key_is_rotated_and_only_once(as_: Any, page: Any, acme: Any, end: Any) -> None:
    end(acme.apikey)
    before = ApiKey.objects.count()
    with pytest.raises(keys.NotRotatable):
        keys.rotate(acme.apikey, DAY)
    client = as_("admin")
    assert client.post(page("apikey", "rotate_key", acme.apikey), {"overlap": "day"}).status_code == 403
    assert "/rotate/" not in client.get(page("apikey", "change", acme.apikey)).content.decode()
    assert ApiKey.objects.count() == before


def test_a_key_whose_successor_was_revoked_is_rotated_again(acme: Any) -> None:
    first, _ = keys.rotate(acme.apikey, DAY)
    keys.revoke(first)
    second, _ = keys.rotate(acme.apikey, DAY)
    acme.apikey.refresh_from_db()
    assert acme.apikey.replaced_by == second


@pytest.mark.parametrize(("overlap", "good"), [("now", False), ("hour", True), ("month", True)])
def test_a_key_is_rotated_on_its_page_and_shown_once(as_: Any, page: Any, acme: Any, overlap: str, good: bool) -> None:
    client, address = as_("admin"), page("apikey", "rotate_key", acme.apikey)
    assert 'value="day"' in client.get(address).content.decode()
    response = client.post(address, {"overlap": overlap}, follow=True)
    key = shown_key(response)
    new = ApiKey.objects.get(digest=keys.digest_of(key))
    acme.apikey.refresh_from_db()
    assert (acme.apikey.replaced_by, is_valid(acme.apikey), is_valid(new)) == (new, good, True)
    assert new.created_by.username == "admin"
    assert "no-store" in response["Cache-Control"]
    for row in (new, acme.apikey):
        assert key not in client.get(page("apikey", "change", row)).content.decode()


def test_an_overlap_that_is_none_is_refused(as_: Any, page: Any, acme: Any) -> None:
    response = as_("admin").post(page("apikey", "rotate_key", acme.apikey), {"overlap": "for ever"})
    assert "Select a valid choice" in response.content.decode()
    assert not ApiKey.objects.exclude(replaced_by=None).exists()


@pytest.mark.parametrize("view", ["rotate_key", "overlap_key"])
@pytest.mark.parametrize(("role", "status"), [("auditor", 403), ("stranger", 404), ("anonymous", 302)])
def test_nobody_else_rotates(as_: Any, page: Any, acme: Any, view: str, role: str, status: int) -> None:
    if view == "overlap_key":
        keys.rotate(acme.apikey, DAY)
    before = ApiKey.objects.values_list("pk", "expires_at", "replaced_by").order_by("pk")
    keys_before = list(before)
    for method in ("get", "post"):
        assert getattr(as_(role), method)(page("apikey", view, acme.apikey)).status_code == status
    assert list(before.all()) == keys_before


def test_the_pages_say_which_key_is_still_used(as_: Any, page: Any, acme: Any) -> None:
    new, _ = keys.rotate(acme.apikey, 7 * DAY)
    client = as_("auditor")
    old_page = client.get(page("apikey", "change", acme.apikey)).content.decode()
    assert "No client has used it since" in old_page
    assert page("apikey", "change", new) in old_page
    change(acme.apikey, last_used_at=timezone.now() + timedelta(seconds=1))
    assert "A client still uses it" in client.get(page("apikey", "change", acme.apikey)).content.decode()
    assert page("apikey", "change", acme.apikey) in client.get(page("apikey", "change", new)).content.decode()
    assert "Replaced, ends in" in client.get(page("apikey", "changelist")).content.decode()


def test_an_overlap_is_ended_now_and_prolonged(as_: Any, page: Any, acme: Any) -> None:
    keys.rotate(acme.apikey, DAY)
    client, address = as_("admin"), page("apikey", "overlap_key", acme.apikey)
    assert client.get(address).status_code == 200
    assert client.post(address, {"overlap": "now"}).status_code == 302
    assert not is_valid(acme.apikey)
    assert client.post(address, {"overlap": "week"}).status_code == 302
    assert is_valid(acme.apikey)
    keys.revoke(acme.apikey)
    assert client.post(address, {"overlap": "week"}).status_code == 403


def test_what_people_do_to_keys_is_recorded(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    client.post(page("apikey", "rotate_key", acme.apikey), {"overlap": "day"})
    client.post(page("apikey", "overlap_key", acme.apikey), {"overlap": "now"})
    new = ApiKey.objects.get(replaces=acme.apikey)
    client.post(page("apikey", "revoke_key", new))
    changes = [(change.action, change.object_id) for change in Change.objects.order_by("position")]
    old_id, new_id = str(acme.apikey.pk), str(new.pk)
    assert changes == [
        (Action.CREATED, new_id),
        (Action.ROTATED, old_id),
        (Action.CHANGED, old_id),
        (Action.REVOKED, new_id),
    ]
    assert {change.person_name for change in Change.objects.all()} == {"admin"}
    assert not re.search(r"mcphub_[\w-]{20}", "".join(change.before + change.after for change in Change.objects.all()))


# --- Commands ---------------------------------------------------------------------------------------------------------


def command_output(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue().strip()


def test_a_narrow_key_is_issued_by_a_command(acme: Any) -> None:
    words = ["--tools", "acme_*", "other", "--methods", "tools/*", "--networks", "192.0.2.0/24"]
    key = command_output("issue_key", "--tenant", "acme", "--name", "cron", *words)
    row = ApiKey.objects.get(digest=keys.digest_of(key))
    assert (row.tool_patterns, row.methods, row.networks) == (["acme_*", "other"], ["tools/*"], ["192.0.2.0/24"])


@pytest.mark.parametrize("words", [["--networks", "home"], ["--methods", "tool/*"], ["--tools", "a b"]])
def test_a_command_names_what_is_no_scope(acme: Any, words: list[str]) -> None:
    with pytest.raises(CommandError, match=re.escape(" ".join(words))):
        command_output("issue_key", "--tenant", "acme", "--name", "cron", *words)
    assert not ApiKey.objects.filter(name="cron").exists()


@pytest.mark.parametrize("named", ["prefix", "name", "id"])
def test_a_key_is_rotated_by_a_command(acme: Any, named: str) -> None:
    word = {"prefix": acme.apikey.prefix, "name": acme.apikey.name, "id": str(acme.apikey.pk)}[named]
    key = command_output("rotate_key", "--tenant", "acme", "--key", word, "--overlap-hours", "48")
    acme.apikey.refresh_from_db()
    assert acme.apikey.replaced_by.digest == keys.digest_of(key)
    assert timedelta(hours=47) < acme.apikey.expires_at - timezone.now() <= 2 * DAY
    assert Change.objects.filter(action=Action.ROTATED, object_id=str(acme.apikey.pk)).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tenant", "never", "--key", "x"], "Unknown tenant"),
        (["--tenant", "acme", "--key", "never"], "no such key"),
        (["--tenant", "acme", "--key", "twin"], "Several"),
        (["--tenant", "acme", "--key", "acme laptop", "--overlap-hours", "-1"], "--overlap-hours"),
    ],
)
def test_a_command_says_which_key_it_cannot_rotate(acme: Any, arguments: list[str], message: str) -> None:
    for _ in range(2):
        keys.issue(acme.tenant, "twin")
    with pytest.raises(CommandError, match=message):
        command_output("rotate_key", *arguments)
