"""The list of sign-in attempts: one line for each with its steps, and links from refusals to policies."""

from datetime import timedelta
from typing import Any

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.identity.oauth.person import Application, Person
from tools_app.identity.oauth import attempts
from tools_app.models import (
    ApiKey,
    Change,
    ClientDecision,
    ClientPolicy,
    Connection,
    OAuthClient,
    SignInEvent,
    SignInStep,
    Tenant,
)


def rows(admin: Client, query: str = "") -> list[SignInEvent]:
    page = admin.get(f"{reverse('admin:tools_app_signinevent_changelist')}{query}")
    return list(page.context["cl"].result_list)


def step(step: SignInStep, tenant: Tenant | None = None, **facts: Any) -> SignInEvent:
    event = SignInEvent(step=step, tenant=tenant, **{"client_id": "robot", "client_name": "Robot", **facts})
    event.attempt = attempts.attempt_of(event)
    event.save()
    return event


def test_the_steps_of_one_attempt_are_one_line_with_the_outcome(
    admin: Client, ann: Person, application: Application
) -> None:
    application.get_tokens(ann, ["echo"])
    (line,) = rows(admin)
    assert line.step == SignInStep.ISSUED
    assert [one.step for one in vars(line)["steps_of_attempt"]] == ["asked", "allowed", "issued"]
    page = admin.get(reverse("admin:tools_app_signinevent_change", args=[line.pk])).content.decode()
    for expected in ("Access requested", "Allowed", "Tokens issued"):
        assert expected in page
    # Connecting again is another attempt.
    application.get_tokens(ann, ["echo"])
    assert len(rows(admin)) == 2


def test_attempts_of_different_people_tenants_and_times_are_not_mixed(
    admin: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    first = step(SignInStep.ASKED, tenant, person_name="ann")
    ben = step(SignInStep.ASKED, tenant, person_name="ben")
    elsewhere = step(SignInStep.ASKED, other_tenant, person_name="ann")
    assert len({first.attempt, ben.attempt, elsewhere.attempt}) == 3
    assert step(SignInStep.DENIED, tenant, person_name="ann").attempt == first.attempt
    assert step(SignInStep.ASKED, tenant, person_name="ann").attempt != first.attempt
    SignInEvent.objects.update(at=timezone.now() - attempts.WITHIN - timedelta(seconds=1))
    assert step(SignInStep.ALLOWED, tenant, person_name="ben").attempt != ben.attempt
    assert all(row.tenant_id == tenant.pk for row in rows(admin))


def test_a_refusal_leads_to_the_policy_in_one_click(
    admin: Client, ann: Person, application: Application, tenant: Tenant
) -> None:
    ClientPolicy.objects.create(tenant=tenant, host="*", decision=ClientDecision.ASK)
    application.register()
    ann.open(application.url())
    (line,) = rows(admin)
    assert line.host == "localhost"
    page = admin.get(reverse("admin:tools_app_signinevent_change", args=[line.pk])).content.decode()
    link = page.split('href="/admin/tools_app/clientpolicy/add/')[1].split('"')[0].replace("&amp;", "&")
    form = admin.get(f"/admin/tools_app/clientpolicy/add/{link}")
    assert form.context["adminform"].form["host"].value() == "localhost"
    assert '<option value="localhost">' in form.content.decode()
    ClientPolicy.objects.create(tenant=tenant, host="localhost", decision=ClientDecision.ASK)
    page = admin.get(reverse("admin:tools_app_signinevent_change", args=[line.pk])).content.decode()
    assert "Change the policy for localhost" in page


def test_hosts_of_other_tenants_are_not_offered(admin: Client, other_tenant: Tenant) -> None:
    step(SignInStep.ASKED, other_tenant, host="secret.example")
    assert "secret.example" not in admin.get(reverse("admin:tools_app_clientpolicy_add")).content.decode()


def test_sign_ins_are_filtered_by_client_and_by_connection(
    admin: Client, ann: Person, application: Application, tenant: Tenant
) -> None:
    application.get_tokens(ann, ["echo"])
    other = step(SignInStep.REJECTED, tenant, client_id="other", client_name="Other")
    assert [row.pk for row in rows(admin, "?client=Other")] == [other.pk]
    connection = Connection.objects.get()
    url = reverse("admin:tools_app_connection_sign_ins_of_connection", args=[connection.pk])
    response = admin.get(url)
    assert [row.step for row in rows(admin, f"?{response['Location'].partition('?')[2]}")] == ["issued"]
    assert rows(admin, "?connection=nonsense") == []


def test_an_admin_changes_what_a_connection_may_use(
    admin: Client, ann: Person, application: Application, tenant: Tenant
) -> None:
    application.get_tokens(ann, ["echo"])
    row = Connection.objects.get()
    url = reverse("admin:tools_app_connection_change_access", args=[row.pk])
    page = admin.get(url).content.decode()
    assert "the person can choose other names" in page
    # A field that is submitted unchanged changes nothing.
    key = row.key
    shown = timezone.localtime(key.expires_at).strftime("%Y-%m-%dT%H:%M:%S")
    assert f'value="{shown}"' in page
    assert admin.post(url, {"tool_patterns": "tool=echo", "expires_at": shown}).status_code == 302
    assert ApiKey.objects.get(pk=key.pk).expires_at == key.expires_at
    assert not Change.objects.filter(kind="connection", action="changed").exists()
    data = {"tool_patterns": "count", "methods": "tools/*", "networks": "", "calls_per_minute": "7"}
    ends = timezone.localtime(timezone.now() + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    assert admin.post(url, {**data, "expires_at": ends}).status_code == 302
    key = ApiKey.objects.get(pk=row.key_id)
    assert (key.tool_patterns, key.methods, key.calls_per_minute) == (["count"], ["tools/*"], 7)
    assert key.expires_at is not None
    assert key.expires_at < timezone.now() + timedelta(days=3)
    change = Change.objects.get(kind="connection", action="changed")
    assert '"calls_per_minute":7' in change.after.replace(" ", "")
    assert admin.post(url, {**data, "methods": "tool/call"}).status_code == 200
    assert (
        "calls per minute: 7" in admin.get(reverse("admin:tools_app_connection_change", args=[row.pk])).content.decode()
    )


def test_the_api_changes_what_a_connection_may_use(admin: Client, ann: Person, application: Application) -> None:
    application.get_tokens(ann, ["echo"])
    path = f"/api/v1/connections/{Connection.objects.get().pk}/"

    def patch(**body: Any) -> Any:
        return admin.patch(path, body, content_type="application/json")

    updated = patch(tool_patterns=["count"], calls_per_day=3, expires_at=None).json()
    assert (updated["names"], updated["limits"], updated["expires_at"]) == (["count"], {"calls_per_day": 3}, None)
    assert patch(tool_patterns="count").status_code == 400
    assert patch(person="ben").status_code == 400
    assert patch(networks=["nonsense"]).status_code == 400


def test_an_admin_sees_the_clients_of_own_connections_and_blocks_none(
    admin: Client, ann: Person, application: Application, tenant: Tenant
) -> None:
    application.get_tokens(ann, ["echo"])
    mine = OAuthClient.objects.get()
    other = OAuthClient.objects.create(client_id="other", source="dynamic", name="Other")
    listed = admin.get(reverse("admin:tools_app_oauthclient_changelist")).content.decode()
    assert mine.name in listed
    assert "Other" not in listed
    assert admin.get(reverse("admin:tools_app_oauthclient_change", args=[mine.pk])).status_code == 200
    assert admin.get(reverse("admin:tools_app_oauthclient_change", args=[other.pk])).status_code == 404
    assert admin.post(reverse("admin:tools_app_oauthclient_block_client", args=[mine.pk])).status_code == 403
    assert OAuthClient.objects.get(pk=mine.pk).blocked_at is None


def test_all_of_sign_in_is_found_by_name_and_its_steps_by_id(
    admin: Client, ann: Person, application: Application, tenant: Tenant
) -> None:
    application.get_tokens(ann, ["echo"])
    ClientPolicy.objects.create(tenant=tenant, host="test.example", decision=ClientDecision.DENY)
    page = admin.get(reverse("admin:search"), {"s": "test"}).content.decode()
    for model in ("connection", "oauthclient", "clientpolicy"):
        assert f"/admin/tools_app/{model}/" in page
    step = SignInEvent.objects.filter(tenant=tenant).earliest("at")
    page = admin.get(reverse("admin:search"), {"s": str(step.pk)}).content.decode()
    assert f"/admin/tools_app/signinevent/{step.pk}/" in page
