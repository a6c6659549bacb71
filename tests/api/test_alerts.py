"""Alerts by REST: rules with their destinations, a secret that is shown once, and tests."""

from typing import Any

from tests.admin.conftest import World


def test_a_rule_has_destinations_of_its_own_tenant(as_: Any, acme: World, globex: World) -> None:
    api = as_("admin")
    said = {"tenant": "acme", "name": "errors", "kind": "error_rate", "threshold": 5}
    own, other = str(acme.alertdestination.pk), str(globex.alertdestination.pk)
    made = api.post("alert-rules/", {**said, "destinations": [own]})
    assert made["destinations"] == [own]
    assert api.patch(f"alert-rules/{made['id']}/", {"threshold": 7})["destinations"] == [own]
    assert api.patch(f"alert-rules/{made['id']}/", {"destinations": []})["destinations"] == []
    for wrong in ([other], ["nonsense"], [own, own + "0"]):
        assert api.ask("PATCH", f"alert-rules/{made['id']}/", {"destinations": wrong}).status_code == 400
    assert as_("superuser").ask("PATCH", f"alert-rules/{made['id']}/", {"destinations": [other]}).status_code == 400


def test_a_rule_is_checked_against_its_kind(as_: Any, acme: World) -> None:
    said = {"tenant": "acme", "name": "errors", "kind": "error_rate", "threshold": 5}
    for wrong in ({"threshold": 101}, {"kind": "process_died", "threshold": 1}, {"window_minutes": 1}):
        assert as_("admin").ask("POST", "alert-rules/", {**said, **wrong}).status_code == 400, wrong
    assert as_("admin").ask("POST", "alert-rules/", {**said, "name": "acme denials"}).status_code == 409


def test_a_secret_is_only_in_the_answers_that_make_it(as_: Any, acme: World) -> None:
    api = as_("admin")
    said = {"tenant": "acme", "name": "chat", "kind": "webhook", "url": "https://example.com/x"}
    made = api.post("alert-destinations/", said)
    assert made["secret"].startswith("whsec_")
    assert "secret" not in api.get(f"alert-destinations/{made['id']}/")
    assert as_("auditor").get(f"alert-destinations/{made['id']}/")["url"] == ""
    rotated = api.ask("POST", f"alert-destinations/{made['id']}/rotate/").json()
    assert rotated["secret"] not in {None, made["secret"]}


def test_a_test_returns_its_delivery(as_: Any, acme: World) -> None:
    api = as_("admin")
    found = api.ask("POST", f"alert-destinations/{acme.alertdestination.pk}/test/").json()
    assert (found["event"], found["attempts"], found["status"]) == ("alert.test", 1, "pending")
    assert found["error"]
    assert found["id"] in {row["id"] for row in api.get("alert-deliveries/?status=pending")["results"]}
