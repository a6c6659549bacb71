"""Pages of lists have a maximum size in bytes: large rows make a page shorter, and `next` continues."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.rest import ROOT, Api
from tests.worlds import HTTP_TOOL, NOON, World
from tools_app.calls.api import calls
from tools_app.models import Call, CallEvent, Change, Prompt, Resource, Tool, ToolRevision
from tools_app.web.api import paging

BYTES = 20_000
LARGE = "x" * (BYTES // 4)
SCHEMA = {"type": "object", "description": LARGE}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (paging, calls):
        monkeypatch.setattr(module, "MAX_PAGE_BYTES", BYTES)


@pytest.fixture
def admin(as_: Any) -> Api:
    return as_("admin")


def pages(api: Api, path: str) -> list[list[Any]]:
    """All pages of a list."""
    found = []
    next_page: str | None = f"{ROOT}{path}"
    while next_page:
        parts = urlsplit(next_page)
        response = api.client.get(f"{parts.path}?{parts.query}")
        assert response.status_code == 200, response.content
        assert len(response.content) < BYTES + 2000, "a page and the addresses around it"
        body = response.json()
        found.append(body["results"])
        next_page = body["next"]
        assert len(found) < 50
    return found


def test_rows_that_are_large_come_in_more_pages_and_none_is_missing(admin: Api, acme: World) -> None:
    for number in range(9):
        Tool.objects.create(tenant=acme.tenant, name=f"t{number}", **HTTP_TOOL | {"input_schema": SCHEMA})
    found = pages(admin, "tools/")
    assert [row["name"] for page in found for row in page] == [f"t{n}" for n in range(8, -1, -1)] + [acme.tool.name]
    assert len(found) > 2
    assert found[0][0]["input_schema"] == SCHEMA, "what a list has, it has whole"


def test_a_row_that_is_larger_than_a_page_is_a_page_of_its_own(admin: Api, acme: World) -> None:
    larger = {"type": "object", "description": "x" * (BYTES - 500)}
    for number in range(2):
        Tool.objects.create(tenant=acme.tenant, name=f"t{number}", **HTTP_TOOL | {"input_schema": larger})
    assert [len(page) for page in pages(admin, "tools/")][:2] == [1, 1]


@pytest.mark.parametrize(("most", "rows"), [(1, 1), (19, 1), (20, 2), (29, 2), (30, 3)])
def test_a_page_has_as_many_rows_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch, most: int, rows: int) -> None:
    monkeypatch.setattr(paging, "MAX_PAGE_BYTES", most)
    # Ten bytes of JSON each.
    assert paging.within_page_bytes(["x" * 8] * 4) == ["x" * 8] * rows


def test_what_grows_when_it_is_written_as_json_is_counted_as_it_is_written(admin: Api, acme: World) -> None:
    for number in range(6):
        row = Prompt(tenant=acme.tenant, name=f"p{number}", kind="template", description="\x01" * (BYTES // 10))
        row.messages = [{"role": "user", "text": "x"}]
        row.save()
    assert len(pages(admin, "prompts/")) > 2


def test_a_list_of_resources_tells_how_long_their_contents_are_and_does_not_read_them(admin: Api, acme: World) -> None:
    Resource.objects.create(tenant=acme.tenant, uri="docs://t", name="t", kind="text", text="ä" * BYTES)
    Resource.objects.create(tenant=acme.tenant, uri="docs://f", name="f", kind="file", blob=b"x" * BYTES)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        ((file, text, first),) = pages(admin, "resources/")
    assert [row["size"] for row in (file, text, first)] == [BYTES, 2 * BYTES, len(acme.resource.text)]
    assert not any("text" in row for row in (file, text, first))
    read = [query["sql"] for query in queries if 'FROM "tools_app_resource"' in query["sql"]]
    assert read
    assert not any(', "tools_app_resource"."blob"' in sql for sql in read)
    assert admin.get(f"resources/{text['id']}/")["text"] == "ä" * BYTES


def test_changes_come_in_more_pages_too(admin: Api, acme: World) -> None:
    text = json.dumps({"description": LARGE})
    for number in range(6):
        Change.objects.create(
            tenant=acme.tenant,
            via="admin",
            action="changed",
            kind="tool",
            object_id="1",
            before=text,
            after=text,
            position=10**6 + number,
            digest=b"d",
        )
    found = pages(admin, "changes/")
    assert sum(len(page) for page in found) == 6
    assert len(found) > 2


def test_the_cause_of_a_call_is_cut_in_a_list_and_whole_by_itself(admin: Api, acme: World) -> None:
    Call.objects.filter(pk=acme.call.pk).update(cause="x" * 1001)
    (row,) = admin.get("calls/")["results"]
    assert row["cause"] == "x" * 1000 + "…"
    assert admin.get(f"calls/{acme.call.pk}/")["cause"] == "x" * 1001


def test_events_go_on_after_the_last_one_that_a_page_had_room_for(admin: Api, acme: World) -> None:
    rows = [CallEvent(call=acme.call, sequence=n, kind="log", data=json.dumps(LARGE), at=NOON) for n in range(2, 10)]
    CallEvent.objects.bulk_create(rows)
    seen: list[int] = []
    while page := admin.get(f"calls/{acme.call.pk}/events/?after={seen[-1] if seen else 0}"):
        assert len(json.dumps(page)) < BYTES + 100
        assert page[0]["sequence"] == len(seen) + 1
        seen += [event["sequence"] for event in page]
    assert seen == list(range(1, 10))
    assert len(json.dumps(admin.get(f"calls/{acme.call.pk}/"))) < BYTES + 2000


def test_revisions_go_on_before_the_last_one_that_a_page_had_room_for(admin: Api, acme: World) -> None:
    for number in range(1, 8):
        ToolRevision.objects.create(
            tool=acme.tool,
            number=number,
            definition={"input_schema": SCHEMA},
            digest="d",
            created_at=NOON + timedelta(1),
        )
    seen: list[int] = []
    address = f"tools/{acme.tool.pk}/revisions/"
    while page := admin.get(f"{address}?before={seen[-1]}" if seen else address):
        assert len(json.dumps(page)) < BYTES + 100
        assert page[0]["number"] == 7 - len(seen)
        seen += [row["number"] for row in page]
    assert seen == list(range(7, 0, -1))
