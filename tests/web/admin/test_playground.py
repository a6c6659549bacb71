"""The playground's page and its endpoints in the admin: impersonation tokens, code snippets, recorded calls."""

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tools_app.models import ApiKey, Call, CallPayload
from tools_app.tenants import impersonation, keys

TRACE = "0af7651916cd43dd8448eb211c80319c"
# Users who may not use the playground, and the status they get: read-only members, other tenants, no tenant.
REFUSED = [("auditor", 403), ("operator", 403), ("stranger", 404), ("outsider", 302), ("anonymous", 302)]


def facts(response: Any) -> dict[str, Any]:
    """The JSON configuration of the page's script."""
    text = response.content.decode().split('<script id="playground-start" type="application/json">')[1]
    configuration: dict[str, Any] = json.loads(text.split("</script>")[0])
    return configuration


def issue_pass(client: Client, key: Any) -> Any:
    return client.post(reverse("admin:playground_pass"), {"key": key})


@pytest.mark.parametrize("who", ["superuser", "admin"])
def test_who_runs_a_tenant_finds_its_active_keys(as_: Any, acme: Any, globex: Any, who: str) -> None:
    for state in ({"revoked_at": timezone.now()}, {"expires_at": timezone.now() - timedelta(days=1)}):
        gone = keys.issue(acme.tenant, "gone")[0]
        ApiKey.objects.filter(pk=gone.pk).update(**state)
    response = as_(who).get(reverse("admin:playground"))
    offered = {key["id"] for key in facts(response)["keys"]}
    assert offered == ({str(acme.apikey.pk), str(globex.apikey.pk)} if who == "superuser" else {str(acme.apikey.pk)})
    assert acme.apikey.digest not in response.content.decode()
    assert "no-store" in response["Cache-Control"]


@pytest.mark.parametrize(
    ("who", "status"), [("auditor", 403), ("operator", 403), ("outsider", 302), ("anonymous", 302)]
)
def test_who_runs_no_tenant_does_not_get_the_page(as_: Any, who: str, status: int) -> None:
    assert as_(who).get(reverse("admin:playground")).status_code == status


def test_without_a_key_the_page_says_what_to_do(as_: Any, acme: Any) -> None:
    keys.revoke(acme.apikey)
    response = as_("admin").get(reverse("admin:playground"), {"tool": acme.tool.pk})
    text = response.content.decode()
    assert "Acme has no active key" in text
    assert f"{reverse('admin:tools_app_apikey_add')}?tenant={acme.tenant.pk}" in text


def test_a_link_chooses_tool_and_key(as_: Any, acme: Any) -> None:
    configuration = facts(as_("admin").get(reverse("admin:playground"), {"tool": acme.tool.pk, "key": acme.apikey.pk}))
    assert (configuration["tool"], configuration["tenant"], configuration["key"]) == (
        "acme_find",
        "acme",
        str(acme.apikey.pk),
    )


RECORDED = '{"term": "a", "token": "[redacted]", "more": [{"pin": "[redacted]", "n": 1}]}'


@pytest.mark.parametrize(
    ("recorded", "arguments", "note"),
    [
        ('{"term": "a"}', {"term": "a"}, ""),
        (RECORDED, {"term": "a", "more": [{"n": 1}]}, "Secrets were redacted"),
        ('{"truncated": true, "size": 9, "head": "x"}', {}, "The arguments were truncated"),
        ("", {}, "The record does not have the arguments"),
    ],
)
def test_a_recorded_call_is_offered_to_run_again(
    as_: Any, page: Any, acme: Any, recorded: str, arguments: dict[str, Any], note: str
) -> None:
    Call.objects.update(method="tools/call")
    CallPayload.objects.filter(call=acme.call).update(arguments=recorded)
    address = f"{reverse('admin:playground')}?call={acme.call.pk}"
    assert f'href="{address}"' in as_("admin").get(page("call", "change", acme.call)).content.decode()
    assert f'href="{address}"' not in as_("auditor").get(page("call", "change", acme.call)).content.decode()
    response = as_("admin").get(address)
    configuration = facts(response)
    assert (configuration["tool"], configuration["key"], configuration["arguments"]) == (
        "acme_find",
        str(acme.apikey.pk),
        arguments,
    )
    assert note in response.content.decode()
    for who, status in REFUSED:
        assert as_(who).get(address).status_code == status


def test_only_calls_of_tools_run_again(as_: Any, acme: Any) -> None:
    Call.objects.update(method="resources/read")
    address = reverse("admin:playground")
    assert as_("admin").get(address, {"call": acme.call.pk}).status_code == 403
    assert as_("admin").get(address, {"call": "nonsense"}).status_code == 404


@pytest.mark.parametrize(("tool", "status"), [("globex", 404), ("nonsense", 404)])
def test_a_link_to_a_foreign_tool_leads_nowhere(as_: Any, globex: Any, tool: str, status: int) -> None:
    tool_id = globex.tool.pk if tool == "globex" else tool
    assert as_("admin").get(reverse("admin:playground"), {"tool": tool_id}).status_code == status


def test_a_tools_page_leads_to_the_playground_for_those_who_may_try_it(as_: Any, page: Any, acme: Any) -> None:
    address = reverse("admin:tools_app_tool_try_tool", args=[acme.tool.pk])
    assert address in as_("admin").get(page("tool", "change", acme.tool)).content.decode()
    assert as_("admin").get(address)["Location"] == f"{reverse('admin:playground')}?tool={acme.tool.pk}"
    assert address not in as_("auditor").get(page("tool", "change", acme.tool)).content.decode()
    assert as_("auditor").get(address).status_code == 403
    assert as_("stranger").get(address).status_code == 404


@pytest.mark.parametrize(
    ("who", "there"), [("superuser", True), ("admin", True), ("auditor", False), ("operator", False)]
)
def test_the_sidebar_names_the_playground_to_those_who_may_use_it(as_: Any, who: str, there: bool) -> None:
    assert (reverse("admin:playground") in as_(who).get(reverse("admin:index")).content.decode()) is there


# --- Passes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["superuser", "admin"])
def test_who_runs_the_tenant_is_given_a_pass(as_: Any, people: dict[str, User], acme: Any, who: str) -> None:
    response = issue_pass(as_(who), acme.apikey.pk)
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    issued = response.json()
    token = impersonation._opened(issued["pass"])
    assert token
    assert (token.key_id, token.person_id) == (acme.apikey.pk, people[who].pk)
    assert issued["seconds"] == pytest.approx(token.expires - time.time(), abs=30)


@pytest.mark.parametrize(("who", "status"), REFUSED)
def test_nobody_else_is_given_one(as_: Any, acme: Any, who: str, status: int) -> None:
    response = issue_pass(as_(who), acme.apikey.pk)
    assert response.status_code == status
    assert impersonation.PREFIX not in response.content.decode()


@pytest.mark.parametrize("key_id", ["", "nonsense", "00000000-0000-0000-0000-000000000000"])
def test_there_is_no_pass_for_a_key_that_is_none(as_: Any, key_id: str) -> None:
    assert issue_pass(as_("superuser"), key_id).status_code == 404


def test_there_is_no_pass_for_a_key_that_is_no_good(as_: Any, acme: Any) -> None:
    keys.revoke(acme.apikey)
    response = issue_pass(as_("admin"), acme.apikey.pk)
    assert response.status_code == 409
    assert "no longer active" in response.json()["problem"]


def test_a_pass_is_not_given_to_another_site(people: dict[str, User], acme: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["admin"])
    assert issue_pass(client, acme.apikey.pk).status_code == 403
    assert client.get(reverse("admin:playground_pass"), {"key": acme.apikey.pk}).status_code == 405


# --- Code ---------------------------------------------------------------------------------------------------------


def code_of(client: Client, key: Any, request: Any) -> Any:
    text = request if isinstance(request, str) else json.dumps(request)
    return client.post(reverse("admin:playground_code"), {"key": key, "request": text})


CALL = {
    "method": "tools/call",
    "params": {"name": "echo", "arguments": {"message": "it's"}},
    "version": "2026-07-28",
    "mirrored": {"Mcp-Param-Region": "eu"},
}


def test_a_request_becomes_code_that_names_no_key(as_: Any, acme: Any) -> None:
    client = as_("admin")
    token = issue_pass(client, acme.apikey.pk).json()["pass"]
    code = code_of(client, acme.apikey.pk, CALL).json()
    assert set(code) == {"curl", "python", "typescript"}
    for text in code.values():
        assert "http://testserver/t/acme/mcp" in text
        assert "YOUR_KEY" in text
        assert token not in text
    assert "Mcp-Param-Region: eu" in code["curl"]


@pytest.mark.parametrize(
    "request_",
    [
        "",
        "no JSON",
        "[]",
        "[" * 500,
        {**CALL, "method": "tools/burn"},
        {**CALL, "version": "1999-01-01"},
        "x" * 300_000,
    ],
)
def test_what_is_no_request_becomes_no_code(as_: Any, acme: Any, request_: Any) -> None:
    response = code_of(as_("admin"), acme.apikey.pk, request_)
    assert response.status_code == 400
    assert "Cannot be shown as code" in response.json()["problem"]


@pytest.mark.parametrize(("who", "status"), REFUSED)
def test_code_is_for_those_who_run_the_tenant(as_: Any, acme: Any, who: str, status: int) -> None:
    assert code_of(as_(who), acme.apikey.pk, CALL).status_code == status


# --- Records ------------------------------------------------------------------------------------------------------


def records(client: Client, key: Any, **query: Any) -> Any:
    return client.get(reverse("admin:playground_records"), {"key": key, "trace": TRACE, "since": "0", **query})


def traced(world: Any, **facts: Any) -> Call:
    """The call of a world with this trace, finished just now."""
    Call.objects.filter(pk=world.call.pk).update(trace_id=TRACE, started_at=timezone.now(), **facts)
    found: Call = world.call
    return found


def test_the_record_of_a_call_is_found_by_its_trace(as_: Any, page: Any, acme: Any, globex: Any) -> None:
    call = traced(acme)
    traced(globex)
    found = records(as_("admin"), acme.apikey.pk).json()["records"]
    assert found == [{"url": page("call", "change", call), "says": "OK", "page": "call"}]
    assert records(as_("admin"), acme.apikey.pk, trace="0" * 32).json()["records"] == []
    assert records(as_("admin"), acme.apikey.pk, trace="").json()["records"] == []
    assert records(as_("admin"), acme.apikey.pk, since=(time.time() + 60) * 1000).json()["records"] != []


def test_a_call_that_still_runs_is_found_too(as_: Any, page: Any, acme: Any) -> None:
    type(acme.runningcall).objects.update(trace_id=TRACE)
    found = records(as_("admin"), acme.apikey.pk).json()["records"]
    assert found == [{"url": page("runningcall", "change", acme.runningcall), "says": "Running", "page": "runningcall"}]


def test_only_the_newest_hour_is_searched(as_: Any, acme: Any) -> None:
    traced(acme)
    Call.objects.filter(pk=acme.call.pk).update(started_at=timezone.now() - timedelta(hours=2))
    for since in ("0", "-5", "nonsense", "9" * 40):
        assert records(as_("admin"), acme.apikey.pk, since=since).json()["records"] == []


@pytest.mark.parametrize(("who", "status"), REFUSED)
def test_records_are_for_those_who_run_the_tenant(as_: Any, acme: Any, who: str, status: int) -> None:
    traced(acme)
    assert records(as_(who), acme.apikey.pk).status_code == status
