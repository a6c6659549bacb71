"""Behaviour of the REST API's resources, apart from permissions."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.worlds import HTTP_TOOL, World, build_world
from tools_app.catalog import authoring, versioned
from tools_app.identity.oauth import scopes
from tools_app.models import ApiKey, Call, Membership, Resource, RunningCall, Secret, Session, Tool
from tools_app.tenants import keys
from tools_app.tenants.keys import digest_of

TOOL = {"tenant": "acme", "kind": "http", "name": "search", **{k: v for k, v in HTTP_TOOL.items() if k != "kind"}}


@pytest.fixture
def admin(as_: Any) -> Any:
    return as_("admin", "token")


def test_a_tool_is_made_changed_restored_and_deleted(admin: Any) -> None:
    created = admin.post("tools/", TOOL)
    path = f"tools/{created['id']}/"
    changed = admin.patch(path, {"description": "Finds more.", "result_mask": "rows[*].id", "result_items": 3})
    assert (created["revision"], changed["revision"]) == (1, 2)
    assert [row["number"] for row in admin.get(f"{path}revisions/")] == [2, 1]
    restored = admin.post(f"{path}restore/", {"revision": 1}, status=200)
    assert (restored["revision"], restored["description"]) == (3, "Finds things.")
    assert (changed["result_mask"], restored["result_mask"], restored["result_items"]) == ("rows[*].id", "", None)
    again = admin.post(f"{path}restore/", {"revision": 2}, status=200)
    assert (again["result_mask"], again["result_items"]) == ("rows[*].id", 3)
    assert "result_mask" in admin.patch(path, {"result_mask": "join(a)"}, status=400)["errors"]
    assert admin.request("DELETE", path).status_code == 204
    assert admin.request("GET", path).status_code == 404


@pytest.mark.parametrize("path", ["tools/", "secrets/"])
def test_a_tenant_has_a_bounded_number_of_rows(
    admin: Any, acme: World, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    body = TOOL if path == "tools/" else {"tenant": "acme", "name": "ONE_MORE", "value": "x"}
    monkeypatch.setattr(versioned, "MAX_ROWS", 1)
    before = Tool.objects.count(), Secret.objects.count()
    problem = admin.post(path, body, status=400)
    assert "Delete one first." in json.dumps(problem)
    assert (Tool.objects.count(), Secret.objects.count()) == before


def test_what_was_read_can_be_sent_back_as_it_is(admin: Any, acme: World) -> None:
    for name in ("tools", "resources", "prompts", "keys"):
        row = admin.get(f"{name}/?limit=1")["results"][0]
        response = admin.request("PUT", f"{name}/{row['id']}/", row)
        assert response.status_code == 200, response.content
        written = {**response.json(), "updated_at": 0, "revision": 0}
        if name == "resources":
            # Lists omit it, and a PUT without it keeps it.
            assert written.pop("text") == acme.resource.text
        assert written == {**row, "updated_at": 0, "revision": 0} or name == "keys"


def test_a_change_of_what_somebody_else_changed_is_refused(admin: Any, acme: World) -> None:
    path = f"tools/{acme.tool.pk}/"
    etag = admin.request("GET", path).headers["ETag"]
    admin.patch(path, {"title": "Mine"}, **{"If-Match": etag})
    problem = admin.patch(path, {"title": "Theirs"}, status=412, **{"If-Match": etag})
    assert problem["type"] == "urn:mcphub:problem:changed-meanwhile"
    assert Tool.objects.get(pk=acme.tool.pk).title == "Mine"
    assert admin.request("DELETE", path, **{"If-Match": etag}).status_code == 412
    assert Tool.objects.filter(pk=acme.tool.pk).exists()
    # RFC 9110, section 13.1.1: `*` matches any existing row.
    admin.patch(path, {"title": "Anybody's"}, **{"If-Match": "*"})


def test_the_access_of_a_connection_that_changed_meanwhile_is_not_overwritten(admin: Any, acme: World) -> None:
    row = acme.row("connection")
    path = f"connections/{row.pk}/"
    etag = admin.request("GET", path).headers["ETag"]
    first = admin.request("PATCH", path, {"calls_per_minute": 7}, **{"If-Match": etag})
    assert first.status_code == 200
    problem = admin.patch(path, {"calls_per_minute": 9}, status=412, **{"If-Match": etag})
    assert problem["type"] == "urn:mcphub:problem:changed-meanwhile"
    admin.patch(path, {"calls_per_day": 100}, **{"If-Match": first.headers["ETag"]})
    row.key.refresh_from_db()
    assert (row.key.calls_per_minute, row.key.calls_per_day) == (7, 100)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"nmae": "x"}, "nmae"),
        ({"enabled": "yes"}, "enabled"),
        ({"title": 5}, "title"),
        ({"timeout_seconds": "5"}, "timeout_seconds"),
        ({"input_schema": {"type": "nothing"}}, "input_schema"),
        ({"input_schema": {"type": "object", "properties": []}}, "input_schema"),
        ({"input_schema": {"type": "object", "properties": {"a": {"pattern": "(?=.*x)z"}}}}, "input_schema"),
        ({"output_schema": {"patternProperties": {"(?=.*x)z": {}}}}, "output_schema"),
        ({"config": {"base_url": "https://x.example", "path": "{nothing}"}}, "input_schema"),
        ({"config": {"base_url": "nowhere"}}, "config.base_url"),
        ({"kind": "python"}, "kind"),
        ({"name": "no spaces"}, "name"),
    ],
)
def test_a_wrong_value_is_told_by_its_field(admin: Any, acme: World, wrong: dict[str, Any], field: str) -> None:
    problem = admin.patch(f"tools/{acme.tool.pk}/", wrong, status=400)
    assert list(problem["errors"]) == [field]


def test_a_tool_whose_secret_is_missing_is_refused_with_the_sentence_of_the_admin(admin: Any, acme: World) -> None:
    config = {"method": "GET", "base_url": "https://a.example", "headers": {"X-Key": "{secret:NOPE} {secret:NONE}"}}
    body = {**TOOL, "name": "look", "config": config}
    response = admin.request("POST", "tools/", body)
    assert response.status_code == 400
    assert response.json()["errors"] == {"config.headers": ["There is no secret NONE.", "There is no secret NOPE."]}
    assert admin.request("PATCH", f"tools/{acme.tool.pk}/", {"config": config}).status_code == 400
    for name in ("NOPE", "NONE"):
        admin.post("secrets/", {"tenant": "acme", "name": name, "value": "hush hush"})
    created = admin.post("tools/", body)
    Secret.objects.filter(name="NOPE").delete()
    # A tool whose secret was deleted can still be edited.
    path = {**config, "path": "new"}
    assert admin.patch(f"tools/{created['id']}/", {"title": "new", "config": path})["config"]["path"] == "new"


@pytest.mark.parametrize(("uri", "mime_type"), [("a://logo.png", "image/png"), ("a://b", "application/octet-stream")])
def test_a_file_that_names_no_type_gets_one(admin: Any, acme: World, uri: str, mime_type: str) -> None:
    created = admin.post("resources/", {"tenant": "acme", "uri": uri, "name": "b", "kind": "file", "blob": "eA=="})
    assert created["mime_type"] == mime_type
    assert Resource.objects.get(tenant=acme.tenant, uri=uri).mime_type == mime_type


def test_a_name_that_is_taken_is_a_conflict(admin: Any, acme: World) -> None:
    problem = admin.post("tools/", {**TOOL, "name": acme.tool.name}, status=409)
    assert list(problem["errors"]) == ["name"]


def test_a_tenant_has_one_toolset_and_one_scope_of_a_name(
    as_: Any, admin: Any, acme: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = build_world("umbrella")
    for name, row, more in (
        ("toolsets", acme.row("toolset"), {"tools": ["*"]}),
        ("scopes", acme.row("tenantscope"), {"tool_patterns": ["a"]}),
    ):
        body = {"tenant": "acme", "name": row.name, **more}
        messages = admin.post(f"{name}/", body, status=409)["errors"]["name"]
        assert "Change that one." in messages[0]
        assert as_("superuser").post(f"{name}/", {**body, "tenant": other.tenant.slug})["name"] == row.name
        assert admin.patch(f"{name}/{row.pk}/", {"name": row.name})["name"] == row.name
        second = admin.post(f"{name}/", {**body, "name": "second"})
        assert admin.patch(f"{name}/{second['id']}/", {"name": row.name}, status=409)["errors"]
    assert admin.post("scopes/", {"tenant": "acme", "name": "Not so"}, status=400)["errors"].keys() == {"name"}
    monkeypatch.setattr(scopes, "MAX_SCOPES", 2)
    assert "at most 2 scopes" in str(admin.post("scopes/", {"tenant": "acme", "name": "third"}, status=400)["errors"])
    assert admin.patch(f"scopes/{acme.row('tenantscope').pk}/", {"description": "Reports"})["description"] == "Reports"


def test_a_python_tool_is_offered_by_its_name_and_described_by_its_code(admin: Any) -> None:
    created = admin.post("tools/", {"tenant": "acme", "kind": "python", "name": "echo"})
    assert created["config"] == {"function": "echo"}
    assert created["input_schema"]["type"] == "object"
    assert "title" in admin.patch(f"tools/{created['id']}/", {"title": "Mine"}, status=400)["errors"]
    assert admin.patch(f"tools/{created['id']}/", {"enabled": False})["enabled"] is False
    assert "config" in admin.post("tools/", {"tenant": "acme", "kind": "python", "name": "no"}, status=400)["errors"]


def test_a_secret_is_written_and_never_read(admin: Any) -> None:
    created = admin.post("secrets/", {"tenant": "acme", "name": "token", "value": "hush hush"})
    admin.patch(f"secrets/{created['id']}/", {"value": "hush again"})
    assert authoring.decrypt_secret(Secret.objects.get(pk=created["id"])) == "hush again"
    assert "hush" not in json.dumps([created, admin.get("secrets/"), admin.get("changes/")]).replace(
        "acme-hush-hush", ""
    )


def test_a_key_is_told_once_rotated_and_revoked(admin: Any) -> None:
    created = admin.post(
        "keys/", {"tenant": "acme", "name": "laptop", "tool_patterns": ["search_*"], "calls_per_day": 5}
    )
    assert ApiKey.objects.get(pk=created["id"]).digest == digest_of(created["key"])
    assert "key" not in admin.get(f"keys/{created['id']}/")
    new = admin.post(f"keys/{created['id']}/rotate/", {"overlap_seconds": 60})
    assert (new["tool_patterns"], new["calls_per_day"], new["name"]) == (["search_*"], 5, "laptop")
    assert (created["created_by"], new["created_by"]) == ("admin", "admin")
    assert admin.get(f"keys/{created['id']}/")["replaced_by"] == new["id"]
    assert admin.post(f"keys/{created['id']}/rotate/", {}, status=409)["status"] == 409
    assert admin.post(f"keys/{new['id']}/revoke/", status=200)["status"] == "revoked"


def test_a_key_acts_for_who_made_it_if_that_was_said_when_it_was_made(admin: Any) -> None:
    created = admin.post("keys/", {"tenant": "acme", "name": "laptop", "acts_for_creator": True})
    assert created["acts_for_creator"] is True
    assert admin.post("keys/", {"tenant": "acme", "name": "service"})["acts_for_creator"] is False
    refused = admin.patch(f"keys/{created['id']}/", {"acts_for_creator": False}, status=400)
    assert "acts_for_creator" in refused["errors"]


@pytest.mark.parametrize("path", ["keys/", "service-clients/"])
def test_what_is_said_of_a_new_key_beside_its_settings_is_ignored_or_refused(
    admin: Any, acme: World, path: str
) -> None:
    facts = {
        "id": str(acme.apikey.pk),
        "status": "revoked",
        "created_by": "superuser",
        "created_at": "2000-01-01T00:00:00Z",
        "last_used_at": "2000-01-01T00:00:00Z",
        "revoked_at": "2000-01-01T00:00:00Z",
    }
    facts |= {"prefix": "x", "replaced_by": facts["id"]} if path == "keys/" else {"acts_for_creator": True}
    created = admin.post(path, {"tenant": "acme", "name": "laptop", **facts})
    assert {name for name, value in facts.items() if created[name] == value} == set()
    assert (created["status"], created["created_by"], created["last_used_at"]) == ("active", "admin", None)
    for name in ("digest", "key" if path == "service-clients/" else "person", "model", "tenant_id", "created_by_id"):
        assert name in admin.post(path, {"tenant": "acme", "name": "other", name: "x"}, status=400)["errors"]
    assert not ApiKey.objects.filter(name="other").exists()


def test_a_key_that_acts_for_somebody_else_can_only_be_renamed_and_revoked(as_: Any, admin: Any, acme: World) -> None:
    created = admin.post(
        "keys/", {"tenant": "acme", "name": "laptop", "acts_for_creator": True, "networks": ["::1/128"]}
    )
    path, other = f"keys/{created['id']}/", as_("superuser")
    changes = {
        "expires_at": "2100-01-01T00:00:00Z",
        "tool_patterns": ["*"],
        "methods": ["*"],
        "networks": [],
        "presentation": "full",
        "calls_per_day": 5,
    }
    for name, value in changes.items():
        problem = other.patch(path, {name: value}, status=400)
        assert problem["errors"] == {name: ["Only admin can change a key that acts for them. Revoke it instead."]}
    row = other.get(path)
    assert row == admin.get(path)
    assert other.request("PUT", path, {**row, "name": "her laptop"}).json()["name"] == "her laptop"
    assert admin.patch(path, {"networks": []})["networks"] == []
    assert other.post(f"{path}revoke/", status=200)["status"] == "revoked"


@pytest.mark.parametrize("seconds", [-1, 90 * 24 * 3600 + 1, "60", None])
def test_a_key_is_not_rotated_with_an_overlap_that_makes_no_sense(admin: Any, acme: World, seconds: Any) -> None:
    problem = admin.post(f"keys/{acme.apikey.pk}/rotate/", {"overlap_seconds": seconds}, status=400)
    assert list(problem["errors"]) == ["overlap_seconds"]
    assert not ApiKey.objects.filter(pk=acme.apikey.pk, replaced_by__isnull=False).exists()


def test_a_key_says_whether_it_is_accepted_now_and_is_found_by_it(admin: Any, acme: World) -> None:
    now = timezone.now()
    ends = {"no end": None, "ahead": now + timedelta(hours=1), "over": now - timedelta(seconds=1), "both": now}
    for name, expires_at in ends.items():
        row, _ = keys.issue(acme.tenant, name, expires_at=expires_at)
        if name == "both":
            keys.revoke(row)
    statuses = {row["name"]: row["status"] for row in admin.get("keys/")["results"] if row["name"] in ends}
    assert statuses == {"no end": "active", "ahead": "active", "over": "expired", "both": "revoked"}
    for status in ("active", "expired", "revoked"):
        found = {row["name"] for row in admin.get(f"keys/?status={status}")["results"] if row["name"] in ends}
        assert found == {name for name, its_status in statuses.items() if its_status == status}


def test_the_last_admin_stays(as_: Any, people: dict[str, User], acme: World) -> None:
    own = Membership.objects.get(user=people["admin"])
    admin = as_("admin")
    assert "role" in admin.patch(f"members/{own.pk}/", {"role": "auditor"}, status=400)["errors"]
    assert "role" in as_("superuser").patch(f"members/{own.pk}/", {"role": "auditor"}, status=400)["errors"]
    assert admin.patch(f"members/{own.pk}/", {"person": "admin"})["role"] == "admin"
    assert admin.request("DELETE", f"members/{own.pk}/").status_code == 403
    assert as_("superuser").request("DELETE", f"members/{own.pk}/").status_code == 204


def test_a_member_gets_another_role_and_is_removed(as_: Any, people: dict[str, User]) -> None:
    member = Membership.objects.get(user=people["auditor"])
    admin = as_("admin")
    assert admin.patch(f"members/{member.pk}/", {"role": "operator"})["role"] == "operator"
    assert Membership.objects.get(pk=member.pk).role == "operator"
    assert admin.request("DELETE", f"members/{member.pk}/").status_code == 204
    assert not Membership.objects.filter(pk=member.pk).exists()


@pytest.mark.parametrize("other", [{"person": "outsider"}, {"tenant": "globex"}])
def test_a_member_stays_who_and_where_they_are(
    as_: Any, people: dict[str, User], globex: World, other: dict[str, str]
) -> None:
    member = Membership.objects.get(user=people["auditor"])
    before = Membership.objects.filter(pk=member.pk).values().get()
    problem = as_("superuser").patch(f"members/{member.pk}/", {"role": "operator", **other}, status=400)
    assert "Only the role of a member can be changed." in problem["detail"]
    assert Membership.objects.filter(pk=member.pk).values().get() == before


def test_only_a_person_who_has_an_account_is_added_and_only_once(as_: Any, people: dict[str, User]) -> None:
    superuser = as_("superuser")
    nobody = {"tenant": "acme", "person": "nobody", "role": "auditor"}
    assert "no user with this name" in superuser.post("members/", nobody, status=400)["errors"]["person"][0]
    known = {"tenant": "acme", "person": "auditor", "role": "admin"}
    assert "already a member" in superuser.post("members/", known, status=409)["errors"]["person"][0]
    assert Membership.objects.get(user=people["auditor"]).role == "auditor"


@pytest.mark.parametrize(
    ("query", "found"),
    [("role=auditor", {"auditor"}), ("person=operator", {"operator"}), ("person=operator&role=auditor", set())],
)
def test_members_are_found_by_role_and_by_name(as_: Any, people: dict[str, User], query: str, found: set[str]) -> None:
    assert {row["person"] for row in as_("admin").get(f"members/?{query}")["results"]} == found


def test_what_only_superusers_decide_of_a_tenant_is_refused_to_its_admin(as_: Any, acme: World) -> None:
    admin = as_("admin")
    assert "is_public" in admin.patch("tenants/acme/", {"is_public": True}, status=403)["detail"]
    for field, value in {
        "is_active": False,
        "allowed_networks": ["10.0.0.0/8"],
        "keep_days": 1,
        "public_tools": ["*"],
        "public_calls_per_minute": 1000,
    }.items():
        assert field in admin.patch("tenants/acme/", {field: value}, status=403)["detail"]
    assert "slug" in admin.patch("tenants/acme/", {"slug": "other"}, status=400)["errors"]
    assert admin.patch("tenants/acme/", {"is_public": False, "name": "New name"})["name"] == "New name"
    assert as_("superuser").patch("tenants/acme/", {"is_public": True})["is_public"] is True


def test_a_running_call_is_asked_to_stop(admin: Any, acme: World) -> None:
    row = admin.post(f"running-calls/{acme.runningcall.pk}/cancel/", status=202)
    assert row["cancel_requested"] is True
    assert RunningCall.objects.get(pk=acme.runningcall.pk).cancel_requested


def test_a_session_is_ended(admin: Any, acme: World) -> None:
    assert admin.post(f"sessions/{acme.session.pk}/end/", status=200)["end_reason"] == "admin"
    assert [row["id"] for row in admin.get("sessions/?state=open")["results"]] == []


def test_a_list_of_sessions_leaves_out_what_clients_declared(admin: Any, acme: World) -> None:
    Session.objects.update(client_capabilities={"roots": {"listChanged": True}})
    with CaptureQueriesContext(connection) as queries:
        (row,) = admin.get("sessions/?tenant=acme")["results"]
    assert "client_capabilities" not in row
    assert [query["sql"] for query in queries if "client_capabilities" in query["sql"]] == []
    whole = admin.get(f"sessions/{acme.session.pk}/")
    assert whole["client_capabilities"] == {"roots": {"listChanged": True}}


def test_a_call_is_found_read_and_exported(admin: Any, acme: World) -> None:
    Tool.objects.filter(pk=acme.tool.pk).update(kind="python", config={"function": "acme_code"})
    Call.objects.filter(pk=acme.call.pk).update(tool=acme.tool, tool_revision=1)
    found = admin.get(f"calls/?tenant=acme&tool=acme_*&key={acme.apikey.pk}&text=words")["results"]
    assert [row["id"] for row in found] == [str(acme.call.pk)]
    whole = admin.get(f"calls/{acme.call.pk}/")
    assert whole["tenant"] == "acme"
    assert (whole["arguments"], whole["result"]) == ('{"term": "acme words"}', '{"a": 1}')
    assert whole["source"] == "function acme_code"
    assert [event["kind"] for event in whole["events"]] == ["progress"]
    created = admin.post("exports/", {"format": "jsonl", "query": "tenant=acme", "with_payloads": True})
    lines = admin.request("GET", f"exports/{created['id']}/download/").getvalue().decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(acme.call.pk)]
    assert admin.get(f"exports/{created['id']}/")["state"] == "done"


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
            assert 1 <= len(page["results"]) <= 2
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
        ("tools/?cursor=01890000000070008000000000000001", "cursor"),
        ("tools/?enabled=yes", "enabled"),
        ("calls/?cursor=x", "cursor"),
        ("calls/?since=yesterday", "since"),
        ("calls/?outcome=good", "outcome"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(admin: Any, path: str, field: str) -> None:
    response = admin.request("GET", path)
    assert response.status_code == 400
    assert list(response.json()["errors"]) == [field]


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
    response = admin.client.post("/api/v1/tokens/", body, content_type=kind, headers=admin.headers)
    assert (response.status_code, response.headers["Content-Type"]) == (status, "application/problem+json")


def test_a_body_has_as_many_bytes_as_the_hub_takes_and_not_one_more(admin: Any, settings: Any) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 1000
    start, end = b'{"tenant": "acme", "name": "TOKEN", "value": "hush"', b"}"
    for size, status in ((1001, 413), (1000, 201)):
        body = start + b" " * (size - len(start) - len(end)) + end
        answer = admin.client.post("/api/v1/secrets/", body, content_type="application/json", headers=admin.headers)
        assert (size, answer.status_code) == (size, status)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 201),
        ("Application/JSON", 201),
        ("application/json;charset=utf-8", 201),
        ("application/json ; charset=utf-8", 201),
        ("application/jsonx", 415),
        ("text/json", 415),
        ("text/plain; application/json", 415),
    ],
)
def test_a_body_is_read_if_its_type_is_json_in_any_spelling(admin: Any, kind: str, status: int) -> None:
    body = b'{"tenant": "acme", "name": "TOKEN", "value": "hush"}'
    answer = admin.client.post("/api/v1/secrets/", body, content_type=kind, headers=admin.headers)
    assert answer.status_code == status


def test_a_body_with_a_character_that_cannot_be_stored_says_so(admin: Any) -> None:
    refused, accepted = (
        admin.client.post(
            "/api/v1/secrets/",
            b'{"tenant": "acme", "name": "deep", "value": "%b"}' % value,
            content_type="application/json",
            headers=admin.headers,
        )
        for value in (b"\\u0000", b"\\\\u0000")
    )
    assert refused.status_code == 400
    assert refused.json()["detail"] == "The body contains the character U+0000, which cannot be stored."
    assert accepted.status_code == 201


def test_a_blank_body_names_no_field(admin: Any) -> None:
    blank, empty = (
        admin.client.post("/api/v1/tools/", body, content_type="application/json", headers=admin.headers)
        for body in (b" ", b"{}")
    )
    assert blank.status_code == 400
    assert blank.json()["errors"] == empty.json()["errors"] != {}


def test_an_address_and_a_method_that_there_is_not_are_told_in_the_same_way(admin: Any) -> None:
    assert admin.request("GET", "tools").json()["type"] == "urn:mcphub:problem:missing"
    response = admin.request("DELETE", "calls/")
    assert (response.status_code, response.json()["type"]) == (405, "urn:mcphub:problem:method")
    assert "GET" in response.headers["Allow"]


def test_a_list_asks_the_database_a_few_times_whatever_it_holds(
    admin: Any, acme: World, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        build_world(f"acme{number}")
    for name in ("tools", "keys", "members", "sessions", "calls", "changes", "invitations", "running-calls"):
        with django_assert_max_num_queries(12):
            admin.get(f"{name}/")


def test_a_call_names_the_person_for_whom_it_was(admin: Any, acme: World, people: dict[str, User]) -> None:
    for path, row in (
        (f"calls/{acme.call.pk}/", acme.call),
        (f"running-calls/{acme.runningcall.pk}/", acme.runningcall),
    ):
        assert admin.get(path)["person"] is None
        type(row).objects.filter(pk=row.pk).update(person=people["operator"])
        assert admin.get(path)["person"] == "operator"
    Call.objects.update(person=4711, shaped_size=12)
    (listed,) = admin.get("calls/")["results"]
    assert (listed["person"], listed["shaped_size"]) == ("account 4711 (deleted)", 12)
