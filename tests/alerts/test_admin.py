"""The pages of alerts: rules, destinations with their secret, and tests."""

import re
from typing import Any

import pytest

from tools_app.alerts import destinations, evaluation
from tools_app.alerts.admin import log
from tools_app.alerts.models import AlertDelivery, AlertDestination, AlertRule
from tools_app.models import Change

pytestmark = pytest.mark.django_db
RULE = {
    "kind": "error_rate",
    "enabled": "on",
    "threshold": "25",
    "window_minutes": "15",
    "min_calls": "10",
    "tool_pattern": "",
    "quiet_minutes": "60",
    "notify_resolved": "on",
}


def errors(response: Any) -> dict[str, Any]:
    return dict(response.context["adminform"].form.errors) if response.status_code == 200 else {}


def test_a_rule_is_added_with_its_destinations_and_both_are_recorded(as_: Any, page: Any, acme: Any) -> None:
    data = {**RULE, "tenant": acme.tenant.pk, "name": "errors", "destinations": [acme.alertdestination.pk]}
    response = as_("admin").post(page("alertrule", "add"), data)
    assert response.status_code == 302, errors(response)
    rule = AlertRule.objects.get(name="errors")
    assert list(rule.destinations.all()) == [acme.alertdestination]
    recorded = Change.objects.filter(object_id=str(rule.pk)).order_by("position")
    assert [change.action for change in recorded] == ["created", "changed"]
    assert '"destinations":["acme hook"]' in recorded[1].after


def test_a_rule_of_one_tenant_never_notifies_another(as_: Any, page: Any, acme: Any, globex: Any) -> None:
    data = {**RULE, "tenant": acme.tenant.pk, "name": "errors", "destinations": [globex.alertdestination.pk]}
    for role in ("admin", "superuser"):
        assert "destinations" in errors(as_(role).post(page("alertrule", "add"), data)), role
    assert "globex hook" not in as_("admin").get(page("alertrule", "add")).content.decode()


def test_a_saved_rule_offers_the_destinations_of_its_tenant_only(as_: Any, page: Any, acme: Any, globex: Any) -> None:
    superuser = as_("superuser")
    shown = superuser.get(page("alertrule", "change", acme.alertrule)).content.decode()
    assert "acme hook" in shown
    assert "globex hook" not in shown
    data = {**RULE, "kind": "denials", "name": "denials", "destinations": [globex.alertdestination.pk]}
    assert "destinations" in errors(superuser.post(page("alertrule", "change", acme.alertrule), data))


def test_a_long_summary_is_cut_in_the_list_of_alerts_with_the_whole_on_hover(as_: Any, page: Any, acme: Any) -> None:
    acme.alert.summary = f"{'a_long_name_' * 10}: 34 % of 120 calls failed"
    acme.alert.save()
    shown = as_("admin").get(page("alert", "changelist")).content.decode()
    assert f'<span class="hub-cut" title="{acme.alert.summary}">' in shown


@pytest.mark.parametrize(
    ("invalid", "field"),
    [
        ({"threshold": "101"}, "threshold"),
        ({"threshold": "nan"}, "threshold"),
        ({"window_minutes": "361"}, "window_minutes"),
        ({"quiet_minutes": "1"}, "quiet_minutes"),
        ({"tool_pattern": "a b"}, "tool_pattern"),
        ({"name": "two\nlines\x07"}, "name"),
        ({"tenant": ""}, "tenant"),
        ({"kind": "process_died", "threshold": "1"}, "kind"),
    ],
)
def test_an_invalid_rule_is_rejected_at_its_field(as_: Any, page: Any, acme: Any, invalid: Any, field: str) -> None:
    data = {**RULE, "tenant": acme.tenant.pk, "name": "errors", **invalid}
    assert field in errors(as_("admin").post(page("alertrule", "add"), data))


def test_only_a_superuser_watches_the_whole_hub(as_: Any, page: Any, acme: Any) -> None:
    data = {**RULE, "tenant": "", "name": "died", "kind": "process_died", "threshold": "1"}
    response = as_("superuser").post(page("alertrule", "add"), data)
    assert response.status_code == 302, errors(response)
    rule = AlertRule.objects.get(name="died")
    assert as_("admin").get(page("alertrule", "change", rule)).status_code == 404
    assert rule not in as_("admin").get(page("alertrule", "changelist")).context["cl"].queryset
    assert as_("superuser").get(page("alertrule", "change", rule)).status_code == 200


def test_the_page_of_a_rule_has_the_fields_of_its_kind_and_its_recent_alerts(as_: Any, page: Any, acme: Any) -> None:
    for role in ("admin", "auditor"):
        text = as_(role).get(page("alertrule", "change", acme.alertrule)).content.decode()
        assert "acme was denied" in text
        assert "window_minutes" in text or role == "auditor"
        assert 'name="min_calls"' not in text


def test_a_webhooks_secret_is_shown_once(as_: Any, page: Any, acme: Any) -> None:
    admin = as_("admin")
    data = {
        "tenant": acme.tenant.pk,
        "name": "chat",
        "kind": "webhook",
        "url": "https://example.com/x",
        "enabled": "on",
    }
    response = admin.post(page("alertdestination", "add"), data, follow=True)
    assert "no-store" in response["Cache-Control"]
    again = admin.get(response.redirect_chain[-1][0])
    assert (again.status_code, "rotate the secret" in again.content.decode()) == (410, True)
    row = AlertDestination.objects.get(name="chat")
    [secret] = destinations.signing_secrets(row)
    assert secret in response.content.decode()
    assert secret not in admin.get(page("alertdestination", "change", row)).content.decode()
    assert secret not in again.content.decode()
    # Nor is the address of the webhook, whose path is often a credential.
    for hidden in (secret, "example.com"):
        assert not Change.objects.filter(after__contains=hidden).exists()
    rotated = admin.post(page("alertdestination", "rotate_secret", row), follow=True).content.decode()
    row.refresh_from_db()
    assert destinations.signing_secrets(row)[0] in rotated
    assert destinations.signing_secrets(row)[1] == secret


@pytest.mark.parametrize("url", ["", "ftp://example.com", "https://user@example.com", "nonsense"])
def test_a_webhook_needs_a_url_that_can_be_called(as_: Any, page: Any, acme: Any, url: str) -> None:
    data = {"tenant": acme.tenant.pk, "name": "chat", "kind": "webhook", "url": url, "enabled": "on"}
    assert "url" in errors(as_("admin").post(page("alertdestination", "add"), data))


def test_an_imported_webhook_without_a_url_is_marked_and_gets_one(as_: Any, page: Any, acme: Any) -> None:
    row = AlertDestination.objects.create(tenant=acme.tenant, name="chat", kind="webhook")
    admin, address = as_("admin"), page("alertdestination", "change", row)
    for shown in (page("alertdestination", "changelist"), address):
        assert "The webhook has no URL." in admin.get(shown).content.decode()
    assert list(errors(admin.post(address, {"name": "chat", "url": "", "enabled": "on"}))) == ["url"]
    assert admin.post(address, {"name": "chat", "url": "https://example.com/x", "enabled": "on"}).status_code == 302
    assert "The webhook has no URL." not in admin.get(address).content.decode()


def test_the_address_of_the_other_kind_does_not_count(as_: Any, page: Any, acme: Any) -> None:
    both = {"tenant": acme.tenant.pk, "name": "ops", "enabled": "on", "email": "ops@example.com", "url": "nonsense"}
    response = as_("admin").post(page("alertdestination", "add"), {**both, "kind": "email"})
    assert response.status_code == 302, errors(response)
    row = AlertDestination.objects.get(name="ops")
    assert (row.email, row.url) == ("ops@example.com", "")
    data = {**both, "name": "hook", "kind": "webhook", "email": "nonsense"}
    assert list(errors(as_("admin").post(page("alertdestination", "add"), data))) == ["url"]
    data = {**both, "name": "mail", "kind": "email", "email": ""}
    assert list(errors(as_("admin").post(page("alertdestination", "add"), data))) == ["email"]


def test_who_cannot_change_a_webhook_does_not_see_the_path_of_its_url(as_: Any, page: Any, acme: Any) -> None:
    for role, seen in (("admin", True), ("auditor", False), ("operator", False)):
        text = as_(role).get(page("alertdestination", "change", acme.alertdestination)).content.decode()
        assert ("127.0.0.1:9/hook" in text) is seen, role


def test_a_test_message_says_how_it_ended(as_: Any, page: Any, acme: Any) -> None:
    for model in ("alertdestination", "alertrule"):
        response = as_("admin").post(page(model, "send_test", acme.row(model)), follow=True)
        assert re.search("The test message to acme hook failed", response.content.decode())
    assert AlertDelivery.objects.filter(event="alert.test", attempts=1).count() == 2


def test_test_messages_are_bounded_in_number_and_in_time(
    as_: Any, page: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = page("alertdestination", "send_test", acme.alertdestination)
    monkeypatch.setattr(log, "MAX_TEST_SECONDS", 0)
    assert "is queued" in as_("admin").post(address, follow=True).content.decode()
    (queued,) = AlertDelivery.objects.filter(event="alert.test")
    assert queued.attempts == 0
    monkeypatch.setattr(evaluation, "MAX_TESTS_PER_MINUTE", 1)
    assert "Try again in a minute" in as_("admin").post(address, follow=True).content.decode()
    response = as_("admin").post(f"/api/v1/alert-destinations/{acme.alertdestination.pk}/test/")
    assert (response.status_code, response["Retry-After"]) == (429, "60")
    assert AlertDelivery.objects.filter(event="alert.test").count() == 1


def test_a_tenant_has_a_bounded_number_of_rules(as_: Any, page: Any, acme: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(destinations, "MAX_RULES", 1)
    data = {**RULE, "tenant": acme.tenant.pk, "name": "errors"}
    assert "already 1 alert rules" in str(errors(as_("admin").post(page("alertrule", "add"), data)))


def test_a_rule_and_a_destination_are_deleted_with_their_alerts_and_deliveries(as_: Any, page: Any, acme: Any) -> None:
    admin = as_("admin")
    for row in (acme.alertdestination, acme.alertrule):
        address = page(row._meta.model_name, "delete", row)
        confirmation = admin.get(address).content.decode()
        assert "have permission" not in confirmation
        assert "relationship" not in confirmation
        assert admin.post(address, {"post": "yes"}).status_code == 302
        assert not type(row).objects.filter(pk=row.pk).exists()
    assert not AlertDelivery.objects.filter(pk=acme.alertdelivery.pk).exists()


def test_numbers_of_a_rule_are_written_out(as_: Any, page: Any, acme: Any) -> None:
    text = as_("admin").get(page("alertrule", "change", acme.alertrule)).content.decode()
    assert "1 to 1,000,000 requests" in text
    assert "5 requests" in as_("admin").get(page("alert", "change", acme.alert)).content.decode()


def test_a_rule_without_destinations_to_choose_says_where_they_are_added(as_: Any, page: Any, acme: Any) -> None:
    hint = "There are none yet: add one under Alerts"
    assert hint not in as_("admin").get(page("alertrule", "add")).content.decode()
    AlertDestination.objects.all().delete()
    assert hint in as_("admin").get(page("alertrule", "add")).content.decode()
