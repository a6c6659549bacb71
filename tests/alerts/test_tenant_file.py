"""Alert destinations and rules in a tenant's file."""

from typing import Any

import pytest

from tools_app.alerts import destinations
from tools_app.alerts.models import AlertDestination, AlertRule
from tools_app.audit.changes import changes
from tools_app.models import Change, Tenant
from tools_app.tenant_config import plan as planning
from tools_app.tenant_config.document import read
from tools_app.tenant_config.export import export
from tools_app.tenant_config.plan import ApplyError, apply, plan

pytestmark = pytest.mark.django_db
FILE = """
mcphub: 1
alert_destinations:
  chat: {kind: webhook, url: "https://chat.example.com/hidden"}
  mail: {kind: email, email: ops@example.com}
alert_rules:
  errors: {kind: error_rate, threshold: 5, destinations: [mail, chat]}
"""


def plan_problems(found: Any) -> list[str]:
    return [str(problem) for problem in found.problems]


def steps(found: Any) -> list[tuple[str, str, str]]:
    return [(step.doing, step.kind, step.name) for step in found.steps]


def test_destinations_and_rules_are_made_with_their_defaults(applied: Any, tenant: Tenant) -> None:
    found = applied(FILE)
    assert steps(found) == [
        ("create", "alert destination", "chat"),
        ("create", "alert destination", "mail"),
        ("create", "alert rule", "errors"),
    ]
    assert (found.new_webhooks, found.missing_urls) == (["chat"], [])
    rule = AlertRule.objects.get(tenant=tenant)
    assert (rule.threshold, rule.min_calls, rule.enabled) == (5, 10, True)
    assert [row.name for row in rule.destinations.all()] == ["chat", "mail"]
    chat = AlertDestination.objects.get(name="chat")
    assert chat.url == "https://chat.example.com/hidden"
    assert len(destinations.signing_secrets(chat)) == 1
    assert applied(FILE).is_empty


def test_neither_the_url_nor_the_secret_of_a_webhook_is_in_a_file_or_a_preview(
    applied: Any, planned: Any, tenant: Tenant
) -> None:
    steps_shown = str([step.sides for step in applied(FILE).steps])
    again = planned(FILE.replace("hidden", "other"))
    (step,) = again.steps
    assert (step.name, step.doing) == ("chat", "change")
    assert "chat.example.com" in steps_shown
    for text in (export(tenant), steps_shown, str(step.sides)):
        assert "hidden" not in text
        assert "/other" not in text
        assert "whsec_" not in text
    assert not planned(export(tenant), prune=True).steps


def test_a_webhook_keeps_its_url_and_secret_where_the_file_does_not_have_the_url(applied: Any, tenant: Tenant) -> None:
    applied(FILE)
    row = AlertDestination.objects.get(name="chat")
    before = destinations.signing_secrets(row)
    found = applied("mcphub: 1\nalert_destinations: {chat: {kind: webhook, enabled: false}}")
    assert found.kept == ["alert destination mail"]
    row.refresh_from_db()
    assert (row.url, row.enabled) == ("https://chat.example.com/hidden", False)
    assert destinations.signing_secrets(row) == before


def test_another_tenant_gets_the_webhook_without_its_url_and_is_told(
    applied: Any, tenant: Tenant, other_tenant: Tenant
) -> None:
    applied(FILE)
    text = export(tenant)
    found = plan(other_tenant, read(text), None)
    assert (plan_problems(found), found.missing_urls, found.new_webhooks) == ([], ["chat"], ["chat"])
    apply(found)
    other_tenant.refresh_from_db()
    again = plan(other_tenant, read(text), None)
    assert (again.is_empty, again.missing_urls, again.new_webhooks) == (True, ["chat"], [])
    rule = AlertRule.objects.get(tenant=other_tenant)
    assert {row.tenant for row in rule.destinations.all()} == {other_tenant}


def test_what_is_left_out_of_a_rule_has_its_default_again(applied: Any, tenant: Tenant) -> None:
    applied(FILE)
    (step,) = applied("mcphub: 1\nalert_rules: {errors: {kind: error_rate, min_calls: 3}}").steps
    assert (step.before, step.after) == (
        {"kind": "error_rate", "threshold": 5, "destinations": ["chat", "mail"]},
        {"kind": "error_rate", "min_calls": 3},
    )
    rule = AlertRule.objects.get()
    assert (rule.threshold, rule.min_calls, rule.destinations.count()) == (1, 3, 0)


def test_rules_and_destinations_that_the_file_does_not_name_are_deleted_only_when_pruned(
    applied: Any, tenant: Tenant
) -> None:
    applied(FILE)
    empty = "mcphub: 1\nalert_destinations: {}\nalert_rules: {}"
    assert applied(empty).kept == ["alert destination chat", "alert destination mail", "alert rule errors"]
    assert [step.doing for step in applied(empty, prune=True).steps] == ["delete"] * 3
    assert not AlertRule.objects.exists()
    assert not AlertDestination.objects.exists()


def test_each_change_is_recorded_and_the_url_is_not(tenant: Tenant) -> None:
    with changes.recording_as(changes.at_command_line()):
        apply(plan(tenant, read(FILE), None))
    recorded = [(row.kind, row.action) for row in Change.objects.order_by("position")]
    assert recorded == [
        ("alertdestination", "created"),
        ("alertdestination", "created"),
        ("alertrule", "created"),
        ("alertrule", "changed"),
    ]
    assert not Change.objects.filter(after__contains="hidden").exists()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("alert_rules: {a: {kind: nonsense}}", 'alert_rules.a.kind: "nonsense" is not a valid choice'),
        ("alert_rules: {a: {threshold: 1}}", "alert_rules.a.kind: This field is required"),
        ("alert_rules: {a: {kind: p95, treshold: 1}}", "alert_rules.a.treshold: Unknown field"),
        ("alert_rules: {a: {kind: p95, threshold: many}}", "alert_rules.a.threshold: A valid number is required"),
        ("alert_rules: {a: {kind: p95, destinations: mail}}", "alert_rules.a.destinations: Must be a list of strings"),
        ("alert_destinations: {a: {kind: webhook, secret: b}}", "alert_destinations.a.secret: Unknown field"),
        ("alert_rules: {a: {kind: process_died}}", "alert_rules.a.kind: Rules of this kind watch the whole hub"),
        ("alert_rules: {a: {kind: error_rate, threshold: 101}}", "alert_rules.a.threshold: Enter 0.1 to 100"),
        ("alert_rules: {a: {kind: p95, window_minutes: 1}}", "alert_rules.a.window_minutes:"),
        ('alert_rules: {"a\\n": {kind: p95}}', "Use a single line"),
        ("alert_rules: {a: {kind: p95, destinations: [b]}}", "alert_rules.a.destinations: there is no alert"),
        ("alert_destinations: {a: {kind: email}}", "alert_destinations.a.email: Enter an e-mail"),
        ("alert_destinations: {a: {kind: email, email: x}}", "alert_destinations.a.email: Enter a valid"),
        ("alert_destinations: {a: {kind: email, email: a@b.example, url: 'https://b'}}", "destinations.a.url: E-mail"),
        ("alert_destinations: {a: {kind: webhook, email: a@b.example}}", "alert_destinations.a.email: Webhooks"),
        ("alert_destinations: {a: {kind: webhook, url: 'ftp://b'}}", "alert_destinations.a.url: This URL is invalid"),
    ],
)
def test_what_the_admins_forms_refuse_is_refused_here_too(planned: Any, body: str, message: str) -> None:
    found = planned(f"mcphub: 1\n{body}")
    assert any(message in problem for problem in plan_problems(found)), plan_problems(found)
    with pytest.raises(ApplyError):
        apply(found)
    assert not AlertRule.objects.exists()
    assert not AlertDestination.objects.exists()


def test_the_kind_of_a_row_stays(applied: Any, planned: Any, tenant: Tenant) -> None:
    applied(FILE)
    found = planned("mcphub: 1\nalert_rules: {errors: {kind: p95}}\nalert_destinations: {mail: {kind: webhook}}")
    assert [problem.split(":")[0] for problem in plan_problems(found)] == [
        "alert_destinations.mail.kind",
        "alert_rules.errors.kind",
    ]


def test_a_rule_cannot_notify_what_the_same_file_deletes(applied: Any, planned: Any, tenant: Tenant) -> None:
    applied(FILE)
    text = "mcphub: 1\nalert_destinations: {}\nalert_rules: {errors: {kind: error_rate, destinations: [mail]}}"
    assert "there is no alert destination with the name 'mail'" in plan_problems(planned(text, prune=True))[0]
    assert not planned(text).problems


def test_rows_of_the_file_and_rows_that_stay_count_together(applied: Any, planned: Any, tenant: Tenant) -> None:
    applied(FILE)
    rows = ", ".join(
        f"m{number}: {{kind: email, email: a@b.example}}" for number in range(destinations.MAX_DESTINATIONS)
    )
    found = planned(f"mcphub: 1\nalert_destinations: {{{rows}}}")
    assert plan_problems(found) == ["alert_destinations: A tenant has at most 20 alert destinations. Delete one first."]
    assert not planned(f"mcphub: 1\nalert_destinations: {{{rows}}}", prune=True).problems


def test_a_url_that_changed_since_the_preview_is_noticed(applied: Any, tenant: Tenant) -> None:
    applied(FILE)
    before = planning.fingerprint(tenant)
    AlertDestination.objects.filter(name="chat").update(url="https://chat.example.com/new")
    assert planning.fingerprint(tenant) != before


def test_a_secret_that_is_rotated_after_the_preview_stays(planned: Any, applied: Any, tenant: Tenant) -> None:
    applied(FILE)
    found = planned(FILE.replace("hidden", "other"))
    secret = destinations.rotate_secret(AlertDestination.objects.get(name="chat"))
    apply(found)
    assert destinations.signing_secrets(AlertDestination.objects.get(name="chat"))[0] == secret
