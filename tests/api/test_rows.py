"""What the API does with rows, beyond who may ask for it."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.admin.conftest import HTTP_TOOL, World, build_world
from tools_app.auth.keys import digest_of
from tools_app.execution import authoring
from tools_app.models import ApiKey, Call, Membership, RunningCall, Secret, Tool

TOOL = {"tenant": "acme", "kind": "http", "name": "search", **{k: v for k, v in HTTP_TOOL.items() if k != "kind"}}


@pytest.fixture
def admin(as_: Any) -> Any:
    return as_("admin", "token")


def test_a_tool_is_made_changed_restored_and_deleted(admin: Any) -> None:
    made = admin.post("tools/", TOOL)
    path = f"tools/{made['id']}/"
    changed = admin.patch(path, {"description": "Finds more."})
    assert (made["revision"], changed["revision"]) == (1, 2)
    assert [row["number"] for row in admin.get(f"{path}revisions/")] == [2, 1]
    restored = admin.post(f"{path}restore/", {"revision": 1}, status=200)
    assert (restored["revision"], restored["description"]) == (3, "Finds things.")
    assert admin.ask("DELETE", path).status_code == 204
    assert admin.ask("GET", path).status_code == 404


def test_what_was_read_can_be_sent_back_as_it_is(admin: Any, acme: World) -> None:
    for name in ("tools", "resources", "prompts", "keys"):
        row = admin.get(f"{name}/?limit=1")["results"][0]
        answer = admin.ask("PUT", f"{name}/{row['id']}/", row)
        assert answer.status_code == 200, answer.content
        assert {**answer.json(), "updated_at": 0, "revision": 0} == {
            **row,
            "updated_at": 0,
            "revision": 0,
        } or name == "keys"


def test_a_change_of_what_somebody_else_changed_is_refused(admin: Any, acme: World) -> None:
    path = f"tools/{acme.tool.pk}/"
    etag = admin.ask("GET", path).headers["ETag"]
    admin.patch(path, {"title": "Mine"}, **{"If-Match": etag})
    told = admin.patch(path, {"title": "Theirs"}, status=412, **{"If-Match": etag})
    assert told["type"] == "urn:mcphub:problem:changed-meanwhile"
    assert Tool.objects.get(pk=acme.tool.pk).title == "Mine"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"nmae": "x"}, "nmae"),
        ({"enabled": "yes"}, "enabled"),
        ({"title": 5}, "title"),
        ({"timeout_seconds": "5"}, "timeout_seconds"),
        ({"input_schema": {"type": "nothing"}}, "input_schema"),
        ({"input_schema": {"type": "object", "properties": []}}, "input_schema"),
        ({"config": {"base_url": "https://x.example", "path": "{nothing}"}}, "input_schema"),
        ({"config": {"base_url": "nowhere"}}, "config.base_url"),
        ({"kind": "python"}, "kind"),
        ({"name": "no spaces"}, "name"),
    ],
)
def test_a_wrong_value_is_told_by_its_field(admin: Any, acme: World, wrong: dict[str, Any], field: str) -> None:
    problem = admin.patch(f"tools/{acme.tool.pk}/", wrong, status=400)
    assert list(problem["errors"]) == [field]


def test_a_name_that_is_taken_is_a_conflict(admin: Any, acme: World) -> None:
    problem = admin.post("tools/", {**TOOL, "name": acme.tool.name}, status=409)
    assert list(problem["errors"]) == ["name"]


def test_a_python_tool_is_offered_by_its_name_and_described_by_its_code(admin: Any) -> None:
    made = admin.post("tools/", {"tenant": "acme", "kind": "python", "name": "echo"})
    assert made["config"] == {"function": "echo"}
    assert made["input_schema"]["type"] == "object"
    assert "title" in admin.patch(f"tools/{made['id']}/", {"title": "Mine"}, status=400)["errors"]
    assert admin.patch(f"tools/{made['id']}/", {"enabled": False})["enabled"] is False
    assert "config" in admin.post("tools/", {"tenant": "acme", "kind": "python", "name": "no"}, status=400)["errors"]


def test_a_secret_is_written_and_never_read(admin: Any) -> None:
    made = admin.post("secrets/", {"tenant": "acme", "name": "token", "value": "hush hush"})
    admin.patch(f"secrets/{made['id']}/", {"value": "hush again"})
    assert authoring.open_secret(Secret.objects.get(pk=made["id"])) == "hush again"
    assert "hush" not in json.dumps([made, admin.get("secrets/"), admin.get("changes/")]).replace("acme-hush-hush", "")


def test_a_key_is_told_once_rotated_and_revoked(admin: Any) -> None:
    made = admin.post("keys/", {"tenant": "acme", "name": "laptop", "tool_patterns": ["search_*"], "calls_per_day": 5})
    assert ApiKey.objects.get(pk=made["id"]).digest == digest_of(made["key"])
    assert "key" not in admin.get(f"keys/{made['id']}/")
    new = admin.post(f"keys/{made['id']}/rotate/", {"overlap_seconds": 60})
    assert (new["tool_patterns"], new["calls_per_day"], new["name"]) == (["search_*"], 5, "laptop")
    assert admin.get(f"keys/{made['id']}/")["replaced_by"] == new["id"]
    assert admin.post(f"keys/{made['id']}/rotate/", {}, status=409)["status"] == 409
    assert admin.post(f"keys/{new['id']}/revoke/", status=200)["status"] == "revoked"


def test_the_last_admin_stays(as_: Any, people: dict[str, User], acme: World) -> None:
    own = Membership.objects.get(user=people["admin"])
    admin = as_("admin")
    assert "role" in admin.patch(f"members/{own.pk}/", {"role": "auditor"}, status=400)["errors"]
    assert admin.ask("DELETE", f"members/{own.pk}/").status_code == 403
    assert as_("superuser").ask("DELETE", f"members/{own.pk}/").status_code == 204


def test_what_only_superusers_decide_of_a_tenant_is_refused_to_its_admin(as_: Any, acme: World) -> None:
    admin = as_("admin")
    assert "is_public" in admin.patch("tenants/acme/", {"is_public": True}, status=403)["detail"]
    assert admin.patch("tenants/acme/", {"is_public": False, "name": "New name"})["name"] == "New name"
    assert as_("superuser").patch("tenants/acme/", {"is_public": True})["is_public"] is True


def test_a_running_call_is_asked_to_stop(admin: Any, acme: World) -> None:
    told = admin.post(f"running-calls/{acme.runningcall.pk}/cancel/", status=202)
    assert told["cancel_requested"] is True
    assert RunningCall.objects.get(pk=acme.runningcall.pk).cancel_requested


def test_a_session_is_ended(admin: Any, acme: World) -> None:
    assert admin.post(f"sessions/{acme.session.pk}/end/", status=200)["end_reason"] == "admin"
    assert [row["id"] for row in admin.get("sessions/?state=open")["results"]] == []


def test_a_call_is_found_read_and_exported(admin: Any, acme: World) -> None:
    found = admin.get(f"calls/?tenant=acme&tool=acme_*&key={acme.apikey.pk}&text=words")["results"]
    assert [row["id"] for row in found] == [str(acme.call.pk)]
    whole = admin.get(f"calls/{acme.call.pk}/")
    assert (whole["arguments"], whole["result"]) == ('{"term": "acme words"}', '{"a": 1}')
    assert [event["kind"] for event in whole["events"]] == ["progress"]
    made = admin.post("exports/", {"format": "jsonl", "query": "tenant=acme", "with_payloads": True})
    lines = admin.ask("GET", f"exports/{made['id']}/download/").getvalue().decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(acme.call.pk)]
    assert admin.get(f"exports/{made['id']}/")["state"] == "done"


def test_pages_go_on_where_the_one_before_ended(admin: Any, acme: World) -> None:
    for number in range(4):
        copy = Call.objects.get(pk=acme.call.pk)
        copy.pk = Call._meta.pk.get_default()
        copy.tool_name = f"copy{number}"
        copy.save(force_insert=True)
        admin.post("secrets/", {"tenant": "acme", "name": f"s{number}", "value": "hush"})
    for name in ("calls", "secrets"):
        found, path = [], f"{name}/?limit=2&tenant=acme"
        while path:
            page = admin.get(path)
            assert len(page["results"]) <= 2
            found += [row["id"] for row in page["results"]]
            path = (page["next"] or "").partition("/api/v1/")[2]
        assert len(found) == len(set(found)) == 5


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("tools/?tennant=acme", "tennant"),
        ("tools/?limit=0", "limit"),
        ("tools/?limit=5&limit=6", "limit"),
        ("tools/?cursor=x", "cursor"),
        ("tools/?enabled=yes", "enabled"),
        ("calls/?cursor=x", "cursor"),
        ("calls/?since=yesterday", "since"),
        ("calls/?outcome=good", "outcome"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(admin: Any, path: str, field: str) -> None:
    answer = admin.ask("GET", path)
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == [field]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"name": "\\u0000"}', "application/json", 400),
        (b"[" * 100 + b"]" * 100, "application/json", 400),
        (b"[1]", "application/json", 400),
        (b"name=x", "application/x-www-form-urlencoded", 415),
        (b'"' + b"x" * 5_000_000 + b'"', "application/json", 413),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(admin: Any, body: bytes, kind: str, status: int) -> None:
    answer = admin.client.post("/api/v1/tokens/", body, content_type=kind, headers=admin.headers)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")


def test_an_address_and_a_method_that_there_is_not_are_told_in_the_same_way(admin: Any) -> None:
    assert admin.ask("GET", "tools").json()["type"] == "urn:mcphub:problem:missing"
    answer = admin.ask("DELETE", "calls/")
    assert (answer.status_code, answer.json()["type"]) == (405, "urn:mcphub:problem:method")
    assert "GET" in answer.headers["Allow"]


def test_a_list_asks_the_database_a_few_times_whatever_it_holds(
    admin: Any, acme: World, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        build_world(f"acme{number}")
    for name in ("tools", "keys", "members", "sessions", "calls", "changes", "invitations", "running-calls"):
        with django_assert_max_num_queries(12):
            admin.get(f"{name}/")
