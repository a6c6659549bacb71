"""Alerts in the REST API: rules with their destinations, secrets that are shown once, and test messages."""

from typing import Any

import pytest

from tests.worlds import World
from tools_app.alerts import destinations
from tools_app.alerts.models import AlertDestination, AlertRule
from tools_app.models import Change


def test_a_rule_has_destinations_of_its_own_tenant(rest: Any, acme: World, globex: World) -> None:
    api = rest("admin")
    body = {"tenant": "acme", "name": "errors", "kind": "error_rate", "threshold": 5}
    of_tenant, other = str(acme.alertdestination.pk), str(globex.alertdestination.pk)
    created = api.post("alert-rules/", {**body, "destinations": [of_tenant]})
    assert created["destinations"] == [of_tenant]
    assert api.patch(f"alert-rules/{created['id']}/", {"threshold": 7})["destinations"] == [of_tenant]
    assert api.patch(f"alert-rules/{created['id']}/", {"destinations": []})["destinations"] == []
    for wrong in ([other], ["nonsense"], [of_tenant, of_tenant + "0"]):
        assert api.request("PATCH", f"alert-rules/{created['id']}/", {"destinations": wrong}).status_code == 400
    assert (
        rest("superuser").request("PATCH", f"alert-rules/{created['id']}/", {"destinations": [other]}).status_code
        == 400
    )


def test_a_rule_is_checked_against_its_kind(rest: Any, acme: World) -> None:
    body = {"tenant": "acme", "name": "errors", "kind": "error_rate", "threshold": 5}
    for wrong in ({"threshold": 101}, {"kind": "process_died", "threshold": 1}, {"window_minutes": 1}):
        assert rest("admin").request("POST", "alert-rules/", {**body, **wrong}).status_code == 400, wrong
    assert rest("admin").request("POST", "alert-rules/", {**body, "name": "acme denials"}).status_code == 409


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"url": ""}, "url"),
        ({"url": "nowhere"}, "url"),
        ({"url": "ftp://example.com/x"}, "url"),
        ({"kind": "email"}, "email"),
        ({"kind": "email", "email": "nobody"}, "email"),
    ],
)
def test_a_destination_has_an_address_that_fits_its_kind(
    rest: Any, acme: World, wrong: dict[str, str], field: str
) -> None:
    body = {"tenant": "acme", "name": "chat", "kind": "webhook", "url": "https://example.com/x"}
    response = rest("admin").post("alert-destinations/", {**body, **wrong}, status=400)
    assert list(response["errors"]) == [field]
    if "kind" not in wrong:
        response = rest("admin").patch(f"alert-destinations/{acme.alertdestination.pk}/", wrong, status=400)
        assert list(response["errors"]) == [field]


EACH = pytest.mark.parametrize(
    ("aggregate", "row", "body"),
    [
        ("alert-rules", "alertrule", {"kind": "error_rate", "threshold": 5}),
        ("alert-destinations", "alertdestination", {"kind": "email", "email": "ops@example.com"}),
    ],
)


@EACH
def test_a_tenant_has_a_bounded_number_of_rules_and_of_destinations(
    rest: Any, acme: World, monkeypatch: pytest.MonkeyPatch, aggregate: str, row: str, body: dict[str, Any]
) -> None:
    for name in ("MAX_RULES", "MAX_DESTINATIONS"):
        monkeypatch.setattr(destinations, name, 1)
    api = rest("admin")
    response = api.post(f"{aggregate}/", {**body, "tenant": "acme", "name": "more"}, status=400)
    assert "Delete one first." in response["detail"]
    assert api.patch(f"{aggregate}/{acme.row(row).pk}/", {"name": "more"})["name"] == "more"


@EACH
def test_a_tenant_has_one_rule_and_one_destination_of_a_name(
    rest: Any, acme: World, globex: World, aggregate: str, row: str, body: dict[str, Any]
) -> None:
    api, first = rest("superuser"), acme.row(row)
    second = api.post(f"{aggregate}/", {**body, "tenant": "acme", "name": "second"})
    for answer in (
        api.post(f"{aggregate}/", {**body, "tenant": "acme", "name": first.name}, status=409),
        api.patch(f"{aggregate}/{second['id']}/", {"name": first.name}, status=409),
    ):
        assert "Change that one." in answer["errors"]["name"][0]
    assert api.patch(f"{aggregate}/{first.pk}/", {"name": first.name})["name"] == first.name
    assert api.post(f"{aggregate}/", {**body, "tenant": "globex", "name": first.name})["tenant"] == "globex"


def test_a_destination_that_is_enabled_again_forgets_why_it_was_disabled(rest: Any, acme: World) -> None:
    api, address = rest("admin"), f"alert-destinations/{acme.alertdestination.pk}/"
    AlertDestination.objects.filter(pk=acme.alertdestination.pk).update(enabled=False, disabled_reason="Gone.")
    assert api.patch(address, {"name": "chat"})["disabled_reason"] == "Gone."
    response = api.patch(address, {"enabled": True})
    assert (response["enabled"], response["disabled_reason"]) == (True, "")


def test_a_secret_is_only_in_the_answers_that_make_it(rest: Any, acme: World) -> None:
    api = rest("admin")
    body = {"tenant": "acme", "name": "chat", "kind": "webhook", "url": "https://example.com/x"}
    created = api.post("alert-destinations/", body)
    assert created["secret"].startswith("whsec_")
    assert "secret" not in api.get(f"alert-destinations/{created['id']}/")
    assert rest("auditor").get(f"alert-destinations/{created['id']}/")["url"] == ""
    rotated = api.request("POST", f"alert-destinations/{created['id']}/rotate/").json()
    assert rotated["secret"] not in {None, created["secret"]}


def test_only_a_webhook_has_a_secret_to_rotate(rest: Any, acme: World) -> None:
    api = rest("admin")
    created = api.post(
        "alert-destinations/", {"tenant": "acme", "name": "ops", "kind": "email", "email": "o@example.com"}
    )
    assert created["secret"] is None
    response = api.post(f"alert-destinations/{created['id']}/rotate/", status=409)
    assert response["errors"] == {"kind": ["Only webhooks have a secret."]}


def test_a_test_returns_its_delivery(rest: Any, acme: World) -> None:
    api = rest("admin")
    found = api.request("POST", f"alert-destinations/{acme.alertdestination.pk}/test/").json()
    assert (found["event"], found["attempts"], found["status"]) == ("alert.test", 1, "pending")
    assert found["error"]
    assert found["id"] in {row["id"] for row in api.get("alert-deliveries/?status=pending")["results"]}


@pytest.fixture
def of_hub(rest: Any) -> dict[str, Any]:
    """A rule and a destination without a tenant, as the API returns them."""
    api = rest("superuser")
    body = {"tenant": None, "name": "ops", "kind": "webhook", "url": "https://example.com/x"}
    destination = api.post("alert-destinations/", body)
    rule = {"tenant": None, "name": "died", "kind": "process_died", "threshold": 1, "destinations": [destination["id"]]}
    return {"alert-destinations": destination, "alert-rules": api.post("alert-rules/", rule)}


def test_a_superuser_sets_up_alerts_of_the_whole_hub(rest: Any, acme: World, of_hub: dict[str, Any]) -> None:
    api = rest("superuser")
    rule, destination = of_hub["alert-rules"], of_hub["alert-destinations"]
    assert (rule["tenant"], destination["tenant"]) == (None, None)
    assert destination["secret"].startswith("whsec_")
    address = f"alert-rules/{rule['id']}/"
    assert api.get(address) == rule
    assert api.patch(address, {"quiet_minutes": 30})["destinations"] == [destination["id"]]
    whole = {name: value for name, value in api.get(address).items() if name not in {"id", "created_at"}}
    assert api.request("PUT", address, {**whole, "name": "dead"}).json()["name"] == "dead"
    assert api.request("PATCH", address, {"destinations": [str(acme.alertdestination.pk)]}).status_code == 400
    assert api.request("PATCH", address, {"tenant": "acme"}).status_code == 400
    assert Change.objects.filter(kind="alertrule", object_id=rule["id"], tenant_id=None).count() == 4
    assert api.request("POST", f"alert-destinations/{destination['id']}/test/").status_code == 200
    assert api.request("DELETE", address).status_code == 204
    assert not AlertRule.objects.filter(tenant=None).exists()


def test_rows_of_the_whole_hub_are_checked_like_others(rest: Any, acme: World, of_hub: dict[str, Any]) -> None:
    api = rest("superuser")
    body = {"tenant": None, "name": "more", "kind": "error_rate", "threshold": 5}
    for wrong, status in (
        ({"kind": "failures"}, 400),
        ({"threshold": 101}, 400),
        ({"name": "died"}, 409),
        ({"destinations": [str(acme.alertdestination.pk)]}, 400),
    ):
        assert api.request("POST", "alert-rules/", {**body, **wrong}).status_code == status, wrong
    del body["tenant"]
    assert api.request("POST", "alert-rules/", body).status_code == 400, "the tenant is never left out by accident"


@pytest.mark.parametrize("aggregate", ["alert-rules", "alert-destinations"])
def test_an_empty_tenant_is_not_the_whole_hub(rest: Any, acme: World, aggregate: str) -> None:
    body = {"tenant": "", "name": "more", "kind": "email", "email": "ops@example.com"}
    assert rest("superuser").request("POST", f"{aggregate}/", body).status_code == 400


@pytest.mark.parametrize("role", ["admin", "auditor", "operator", "stranger"])
def test_members_neither_see_nor_change_alerts_of_the_whole_hub(
    rest: Any, acme: World, of_hub: dict[str, Any], role: str
) -> None:
    api = rest(role)
    for name, row in of_hub.items():
        address = f"{name}/{row['id']}/"
        assert row["id"] not in {one["id"] for one in api.get(f"{name}/")["results"]}
        assert api.get(f"{name}/?whole_hub=true")["results"] == []
        found = {api.request(method, address, {"enabled": False}).status_code for method in ("GET", "PATCH", "DELETE")}
        assert found <= {403, 404}
        assert api.request("GET", address).status_code == 404
        body = {"tenant": None, "name": "mine", "kind": row["kind"], "threshold": 1, "url": "https://example.com"}
        body.pop("url" if name == "alert-rules" else "threshold")
        assert api.request("POST", f"{name}/", body).status_code == 403
    assert AlertRule.objects.filter(tenant=None, enabled=True).count() == 1
    assert AlertDestination.objects.filter(tenant=None, enabled=True).count() == 1


def test_lists_are_filtered_by_scope_kind_and_state(rest: Any, acme: World, globex: World, of_hub: Any) -> None:
    api = rest("superuser")

    def names(address: str) -> set[str]:
        return {row["name"] for row in api.get(address)["results"]}

    assert names("alert-rules/?whole_hub=true") == {"died"}
    assert names("alert-rules/?whole_hub=false") == {"acme denials", "globex denials"}
    assert names("alert-rules/?tenant=acme") == {"acme denials"}
    assert names("alert-rules/?kind=denials&enabled=true&search=globex") == {"globex denials"}
    assert names("alert-rules/?kind=p95") == set()
    assert names("alert-destinations/?whole_hub=true&kind=webhook") == {"ops"}
    assert names("alert-destinations/?kind=email") == set()
    assert len(api.get(f"alerts/?rule={acme.alertrule.pk}&whole_hub=false")["results"]) == 1
    assert api.get("alerts/?whole_hub=true")["results"] == []
    assert api.get("alert-deliveries/?whole_hub=true")["results"] == []
    for wrong in ("alert-rules/?kind=nonsense", "alerts/?rule=1", "alert-rules/?whole_hub=1"):
        assert api.request("GET", wrong).status_code == 400, wrong
