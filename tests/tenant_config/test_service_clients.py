"""Service clients in a tenant's file: those with keys are imported, those with a secret are not created."""

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from joserfc.jwk import ECKey

from tools_app.audit.changes.changes import Actor, recording_as
from tools_app.identity.oauth import service_clients, tokens
from tools_app.models import (
    Action,
    Change,
    Connection,
    Membership,
    OAuthClient,
    Role,
    ServiceClient,
    Tenant,
    Toolset,
    Via,
)
from tools_app.tenant_config.document import InvalidConfiguration, read
from tools_app.tenant_config.export import described, export
from tools_app.tenant_config.plan import ApplyError, StepAction, apply, plan

pytestmark = pytest.mark.django_db

KEY = ECKey.generate_key("P-256", {"kid": "one"})
OTHER = ECKey.generate_key("P-256", {"kid": "two"})


def keys_of(*keys: Any) -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) for key in keys]}


def file(clients: Any, **more: Any) -> str:
    return yaml.safe_dump({"mcphub": 1, **more, "service_clients": clients})


SIGNER = {
    "tool_patterns": ["report_*"],
    "methods": ["tools/call"],
    "networks": ["203.0.113.0/24"],
    "toolset": "Reports",
    "presentation": "search",
    "calls_per_day": 500,
    "expires_at": "2031-01-31T13:00:00+01:00",
    "public_keys": keys_of(KEY),
}
REPORTS = {"Reports": {"tools": ["report_*"]}}


def test_a_client_that_signs_is_created_with_its_keys_and_round_trips(
    applied: Any, planned: Any, tenant: Tenant
) -> None:
    found = applied(file({"CI": SIGNER}, toolsets=REPORTS))
    assert found.problems == []
    assert (StepAction.CREATE, "service client", "CI") in {(step.doing, step.kind, step.name) for step in found.steps}
    row = ServiceClient.objects.get()
    client = row.connection.client
    assert (row.tenant, row.name, row.tool_patterns, row.methods) == (tenant, "CI", ["report_*"], ["tools/call"])
    assert (row.networks, row.presentation, row.calls_per_day) == (["203.0.113.0/24"], "search", 500)
    assert row.toolset == Toolset.objects.get()
    assert row.expires_at == datetime(2031, 1, 31, 12, tzinfo=UTC)
    assert (client.auth_method, client.jwks, client.secret_digest) == ("private_key_jwt", keys_of(KEY), "")
    text = export(tenant)
    assert planned(text).is_empty
    other = Tenant.objects.create(slug="copy", name=tenant.name)
    apply(plan(other, read(text), None))
    assert export(other).replace("tenant copy", "tenant acme") == text
    assert ServiceClient.objects.get(tenant=other).connection.client.client_id != client.client_id


def test_one_key_alone_is_stored_as_a_set_and_imported_once(applied: Any, planned: Any) -> None:
    text = file({"CI": {"public_keys": KEY.as_dict(private=False)}})
    applied(text)
    assert OAuthClient.objects.get().jwks == keys_of(KEY)
    assert planned(text).is_empty


def test_a_change_is_previewed_with_both_sides_and_recorded(
    applied: Any, planned: Any, tenant: Tenant, admin_user: User
) -> None:
    with recording_as(Actor(admin_user, Via.ADMIN)):
        applied(file({"CI": SIGNER}, toolsets=REPORTS), admin_user)
    row = ServiceClient.objects.get()
    assert row.created_by == admin_user
    client_id = row.connection.client.client_id
    text = file({"CI": {"methods": ["tools/*"], "public_keys": keys_of(OTHER)}})
    (step,) = planned(text).steps
    assert step.sides[0]["public_keys"] == keys_of(KEY)
    assert step.sides[1] == {"methods": ["tools/*"], "public_keys": keys_of(OTHER)}
    with recording_as(Actor(admin_user, Via.ADMIN)):
        applied(text)
    row = ServiceClient.objects.get()
    assert (row.tool_patterns, row.methods, row.toolset, row.expires_at) == ([], ["tools/*"], None, None)
    assert (row.connection.client.jwks, row.connection.client.client_id) == (keys_of(OTHER), client_id)
    actions = list(Change.objects.filter(kind="serviceclient").order_by("position").values_list("action", flat=True))
    assert actions == [Action.CREATED, Action.CHANGED, Action.CHANGED]
    assert described(tenant)["service_clients"]["CI"] == {"methods": ["tools/*"], "public_keys": keys_of(OTHER)}


def test_a_client_with_a_secret_is_changed_where_it_exists_and_keeps_its_secret(
    applied: Any, planned: Any, tenant: Tenant
) -> None:
    row, secret = service_clients.create(tenant, "Nightly", tool_patterns=["a"])
    before = OAuthClient.objects.values().get()
    text = export(tenant)
    assert secret not in text
    assert before["secret_digest"] not in text
    assert described(tenant)["service_clients"] == {"Nightly": {"tool_patterns": ["a"]}}
    found = planned(file({"Nightly": {"tool_patterns": ["b"], "calls_per_minute": 7}}))
    service_clients.rotate_secret(row)
    digest = OAuthClient.objects.get().secret_digest
    apply(found)
    row.refresh_from_db()
    assert (row.tool_patterns, row.calls_per_minute) == (["b"], 7)
    assert OAuthClient.objects.get().secret_digest == digest != before["secret_digest"]


def test_a_client_with_a_secret_is_never_created_and_the_preview_says_what_to_do(
    applied: Any, planned: Any, tenant: Tenant, tmp_path: Path, client: Client, admin_user: User
) -> None:
    text = file({"Nightly": {"tool_patterns": ["a"]}}, scopes={"reports": {}})
    found = applied(text)
    assert (found.missing_service_clients, found.problems) == (["Nightly"], [])
    # The rest of the file is imported.
    assert [step.kind for step in found.steps] == ["scope"]
    assert not ServiceClient.objects.exists()
    place, output = tmp_path / "acme.yaml", StringIO()
    place.write_text(text)
    call_command("import_tenant", "acme", str(place), yes=True, stdout=output)
    assert "The service client Nightly has a secret, so it is not created by a file." in output.getvalue()
    client.force_login(admin_user)
    page = client.post(reverse("admin:tools_app_tenant_import_configuration", args=[tenant.pk]), {"text": text})
    assert "Service clients that are not created: <strong>Nightly</strong>" in page.content.decode()
    # Once it exists, the file updates it.
    service_clients.create(tenant, "Nightly")
    assert applied(text).missing_service_clients == []
    assert ServiceClient.objects.get().tool_patterns == ["a"]


def test_a_client_that_is_not_in_the_file_is_kept_or_revoked_with_its_tokens(
    applied: Any, planned: Any, tenant: Tenant
) -> None:
    row, _ = service_clients.create(tenant, "CI", public_keys=keys_of(KEY))
    assert planned("mcphub: 1\n", prune=True).is_empty
    assert planned(file({})).kept == ["service client CI"]
    tokens.issue_access(row.connection, "mcp:call")
    with recording_as(Actor(None, Via.COMMAND)):
        (step,) = applied(file({}), prune=True).steps
    assert (step.doing, step.kind, step.name) == (StepAction.DELETE, "service client", "CI")
    row.refresh_from_db()
    assert row.revoked_at is not None
    assert not tokens.is_valid(Connection.objects.get())
    assert Change.objects.filter(kind="serviceclient", action=Action.REVOKED).exists()
    # A revoked client is not part of the configuration, and its name is available.
    assert planned(file({}), prune=True).is_empty
    assert described(tenant)["service_clients"] == {}
    applied(file({"CI": {"public_keys": keys_of(KEY)}}))
    assert ServiceClient.objects.filter(name="CI").count() == 2


def test_clients_of_other_tenants_and_other_connections_are_never_touched(
    applied: Any, tenant: Tenant, admin_user: User
) -> None:
    other = Tenant.objects.create(slug="other", name="Other")
    foreign, _ = service_clients.create(other, "CI", public_keys=keys_of(KEY))
    Toolset.objects.create(tenant=other, name="Theirs", tools=["x"])
    # A user's connection in this tenant, with a client of the same name.
    person, _ = service_clients.create(tenant, "CI")
    Connection.objects.filter(pk=person.connection.pk).update(person=admin_user)
    found = applied(file({"CI": {"methods": ["tools/*"], "public_keys": keys_of(OTHER)}}), prune=True)
    assert [(step.doing, step.name) for step in found.steps] == [(StepAction.CREATE, "CI")]
    foreign.refresh_from_db()
    person.refresh_from_db()
    assert (foreign.methods, foreign.revoked_at, person.methods, person.revoked_at) == ([], None, [], None)
    assert foreign.connection.client.jwks == keys_of(KEY)
    assert described(other)["service_clients"] == {"CI": {"public_keys": keys_of(KEY)}}
    applied(file({}), prune=True)
    foreign.refresh_from_db()
    assert foreign.revoked_at is None


def test_clients_that_share_a_name_are_left_out_and_the_file_says_so(
    applied: Any, planned: Any, tenant: Tenant
) -> None:
    for _ in range(2):
        service_clients.create(tenant, "Twin\nmcphub: 2", public_keys=keys_of(KEY))
    service_clients.create(tenant, "Single", public_keys=keys_of(KEY))
    text = export(tenant)
    assert 'have the same name: "Twin\\nmcphub: 2". Rename' in text
    assert list(described(tenant)["service_clients"]) == ["Single"]
    assert planned(text, prune=True).is_empty
    (problem,) = planned(file({"Twin\nmcphub: 2": {}})).problems
    assert "several service clients have this name" in problem.message


def test_a_changed_client_makes_a_preview_stale(planned: Any, tenant: Tenant) -> None:
    row, _ = service_clients.create(tenant, "CI", public_keys=keys_of(KEY))
    found = planned(file({"CI": {"methods": ["tools/*"], "public_keys": keys_of(KEY)}}))
    service_clients.replace_keys(row, keys_of(OTHER))
    with pytest.raises(ApplyError, match="has changed since the preview"):
        apply(found)


@pytest.mark.parametrize(
    ("row", "problem_text"),
    [
        ({"public_keys": {"keys": []}}, "CI.public_keys: Paste a JSON Web Key Set"),
        ({"public_keys": KEY.as_dict(private=True)}, "CI.public_keys: This is a private key"),
        ({"public_keys": {**KEY.as_dict(private=False), "x5c": ["x" * 70000]}}, "CI.public_keys: The keys have more"),
        ({"public_keys": keys_of(KEY), "methods": ["two words"]}, "CI.methods: Entry 1"),
        ({"public_keys": keys_of(KEY), "networks": ["here"]}, "CI.networks: "),
        ({"public_keys": keys_of(KEY), "calls_per_day": -1}, "CI.calls_per_day: "),
        ({"public_keys": keys_of(KEY), "presentation": "never"}, 'CI.presentation: "never" is not a valid choice'),
        ({"public_keys": keys_of(KEY), "expires_at": "2030-01-01"}, "CI.expires_at: Must be a time"),
        (
            {"public_keys": keys_of(KEY), "expires_at": "0001-01-01T00:00:00+14:00"},
            "CI.expires_at: Datetime value",
        ),
        ({"public_keys": keys_of(KEY), "toolset": "Theirs"}, "CI.toolset: there is no toolset"),
        ({"toolset": "Theirs"}, "CI.toolset: there is no toolset"),
        ({"toolset": 5}, "CI.toolset: Not a valid string"),
        ({"secret": "x"}, "CI.secret: Unknown field"),
        ({"public_keys": []}, "CI.public_keys: Must be a JSON object"),
        ({"tool_patterns": "a"}, "CI.tool_patterns: Must be a list"),
    ],
)
def test_what_the_forms_refuse_is_refused_here_too(planned: Any, row: Any, problem_text: str) -> None:
    other = Tenant.objects.create(slug="other", name="Other")
    Toolset.objects.create(tenant=other, name="Theirs", tools=["x"])
    (problem,) = planned(file({"CI": row})).problems
    assert f"service_clients.{problem_text}" in str(problem)
    assert KEY.as_dict(private=True)["d"] not in str(problem)


def test_how_a_client_authenticates_cannot_be_changed(planned: Any, tenant: Tenant) -> None:
    service_clients.create(tenant, "Signs", public_keys=keys_of(KEY))
    service_clients.create(tenant, "Secret")
    found = planned(file({"Signs": {}, "Secret": {"public_keys": keys_of(KEY)}})).problems
    assert "this client signs its requests" in str(found[1])
    assert "this client has a secret and no keys" in str(found[0])


def test_a_toolset_that_the_file_deletes_is_unknown_to_its_clients(applied: Any, planned: Any) -> None:
    applied(file({}, toolsets=REPORTS))
    found = planned(file({"CI": SIGNER}, toolsets={"Others": {"tools": ["x"]}}), prune=True)
    assert "there is no toolset with the name 'Reports'" in str(found.problems[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("service_clients: [CI]", "service_clients: must be an object of at most"),
        ("service_clients: {CI: yes}", "service_clients.CI: must be an object"),
        ("service_clients: {CI: {public_keys: {x: !!binary aGk=}}}", "service_clients.CI: has a value that is not"),
    ],
)
def test_what_has_another_shape_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        read(f"mcphub: 1\n{text}\n")
    assert message in str(refused.value)


@pytest.mark.parametrize(("role", "status"), [(Role.ADMIN, 200), (Role.AUDITOR, 403), (Role.OPERATOR, 403)])
def test_only_who_may_change_the_tenant_imports_clients(
    client: Client, tenant: Tenant, role: Role, status: int
) -> None:
    user = User.objects.create_user("ann")
    Membership.objects.create(user=user, tenant=tenant, role=role)
    client.force_login(user)
    address = reverse("admin:tools_app_tenant_import_configuration", args=[tenant.pk])
    text = file({"CI": {"public_keys": keys_of(KEY)}})
    page = client.post(address, {"text": text})
    assert page.status_code == status
    fingerprint = page.context["plan"].fingerprint if status == 200 else "x"
    client.post(address, {"text": text, "fingerprint": fingerprint})
    assert ServiceClient.objects.exists() == (status == 200)
