"""Exports of the audit log: permissions, formats, progress, and downloads that are interrupted."""

import asyncio
import csv
import io
import json
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from tests.worlds import World, person
from tools_app.audit import export as exports
from tools_app.audit.export import FACTS
from tools_app.core.packing import pack
from tools_app.models import Action, Call, CallEvent, CallPayload, Change, Export, Membership, Role

START = "/admin/tools_app/call/exports/start/"


def record(tenant: Any, **facts: Any) -> Call:
    at = timezone.now() - timedelta(minutes=1)
    values = {"started_at": at, "finished_at": at, "duration_us": 1, "outcome": "ok", "writer": uuid4()}
    return Call.objects.create(tenant=tenant, **(values | facts))


def started(client: Client, **fields: str) -> Export:
    response = client.post(START, {"format": "jsonl", **fields})
    assert response.status_code == 302
    return Export.objects.get(pk=response["Location"].split("/")[-2])


def file_of(client: Client, export: Export) -> bytes:
    response = client.get(f"/admin/tools_app/call/exports/{export.pk}/download/")
    assert response.status_code == 200
    return b"".join(response.streaming_content)


def objects_of(client: Client, export: Export) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file_of(client, export).splitlines()]


def rows_in(file: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.decode(), newline="")))


def test_an_export_has_the_facts_of_all_calls_that_the_search_finds(as_: Any, acme: World) -> None:
    other = record(acme.tenant, tool_name="other", rpc_error=-32602)
    client = as_("auditor")
    Call.objects.filter(pk=acme.call.pk).update(person=User.objects.get(username="operator"), shaped_size=12)
    export = started(client, query="tool=acme_find")
    assert export.expected == 1
    (exported,) = objects_of(client, export)
    assert set(exported) == set(FACTS)
    assert (exported["id"], exported["tenant"], exported["api_key"]) == (str(acme.call.pk), "acme", "acme laptop")
    assert (exported["person"], exported["shaped_size"]) == ("operator", 12)
    assert datetime.fromisoformat(exported["started_at"]) == acme.call.started_at
    (row,) = rows_in(file_of(client, started(client, query="tool=other", format="csv")))
    assert (row["id"], row["rpc_error"], row["is_error"]) == (str(other.pk), "-32602", "")


def test_arguments_results_and_events_come_for_whoever_audits(as_: Any, acme: World) -> None:
    Call.objects.update(event_count=1, cause="Because.")
    client = as_("auditor")
    (exported,) = objects_of(client, started(client, with_payloads="1"))
    assert (exported["arguments"], exported["result"], exported["cause"]) == (
        {"term": "acme words"},
        {"a": 1},
        "Because.",
    )
    assert [(event["kind"], event["data"]) for event in exported["events"]] == [("progress", {"progress": 0.5})]
    (row,) = rows_in(file_of(client, started(client, with_payloads="1", format="csv")))
    assert (row["arguments"], row["result"]) == ('{"term": "acme words"}', '{"a": 1}')


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_an_operator_gets_facts_only_whatever_it_asks_for(acme: World, globex: World, form: str) -> None:
    user = person("both", acme.tenant, Role.OPERATOR)
    Membership.objects.create(user=user, tenant=globex.tenant, role=Role.AUDITOR)
    Call.objects.update(cause="hush", event_count=1)
    client = Client()
    client.force_login(user)
    text = file_of(client, started(client, with_payloads="1", format=form)).decode()
    assert "globex words" in text
    assert text.count("hush") == 1
    assert "acme_find" in text
    assert "acme words" not in text


def test_what_cannot_be_read_back_does_not_end_an_export(as_: Any, acme: World) -> None:
    texts = {"cut": '{"a": "cut o', "deep": "[" * 500 + "]" * 500, "lines": '{"a":\n1}', "packed": "", "broken": ""}
    for name, text in texts.items():
        call = record(acme.tenant, tool_name=name)
        bits = {"packed": pack('{"p": 1}', "2"), "broken": b"none"}.get(name)
        CallPayload.objects.create(call=call, arguments=text, packed=bits)
    client = as_("auditor")
    lines = file_of(client, started(client, with_payloads="1")).splitlines()
    assert len(lines) == 6
    by_tool = {(one := json.loads(line))["tool_name"]: one for line in lines}
    assert by_tool["cut"]["arguments"] == texts["cut"]
    assert by_tool["packed"]["arguments"] == {"p": 1}
    assert by_tool["broken"]["arguments"] == "[not readable]"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_taken_for_a_formula(as_: Any, acme: World, begin: str) -> None:
    record(acme.tenant, tool_name=f'{begin}HYPERLINK("x")', client_name='a "quoted", name\r\n')
    file = file_of(as_("auditor"), started(as_("auditor"), format="csv", query="client=quoted"))
    (row,) = rows_in(file)
    assert row["tool_name"] == f'\'{begin}HYPERLINK("x")'
    assert row["client_name"] == 'a "quoted", name\r\n'
    assert file.startswith(b"id,started_at,")
    assert file.endswith(b"\r\n")


def test_the_row_says_how_far_the_download_is(as_: Any, acme: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "CHUNK", 1)
    monkeypatch.setattr(exports, "REPORT_EVERY", 1)
    for _ in range(3):
        record(acme.tenant)
    client = as_("auditor")
    export = started(client)
    assert state(client, export)["state"] == "ready"
    pieces = iter(client.get(f"/admin/tools_app/call/exports/{export.pk}/download/").streaming_content)
    downloaded = [next(pieces) for _ in range(4)]
    progress = state(client, export)
    assert (progress["state"], progress["calls"], progress["share"]) == ("running", 2, 50)
    downloaded += pieces
    progress = state(client, export)
    assert (progress["state"], progress["calls"], progress["share"]) == ("done", 4, 100)
    assert progress["bytes"] == len(b"".join(downloaded))


def state(client: Client, export: Export) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/admin/tools_app/call/exports/{export.pk}/progress/").json()
    return found


def test_a_download_that_breaks_off_is_said_to_be_broken_and_can_be_had_again(
    as_: Any, acme: World, people: Any
) -> None:
    client = as_("auditor")
    export = started(client)
    pieces = exports.download(export, people["auditor"])
    assert isinstance(pieces, Generator)
    next(pieces)
    pieces.close()
    assert state(client, export)["state"] == "broken"
    assert "Start it again" in client.get(f"/admin/tools_app/call/exports/{export.pk}/").content.decode()
    assert len(objects_of(client, export)) == 1
    assert state(client, export)["problem"] == ""
    assert state(client, export)["state"] == "done"


def test_an_export_is_about_the_calls_up_to_its_beginning(as_: Any, acme: World) -> None:
    client = as_("auditor")
    export = started(client, query="period=1h")
    record(acme.tenant, started_at=datetime.now(UTC) + timedelta(seconds=1))
    assert objects_of(client, export) == []


def test_nobody_else_finds_an_export(as_: Any, acme: World) -> None:
    export = started(as_("auditor"))
    for who in ("superuser", "admin", "stranger"):
        for view in ("", "progress/", "download/"):
            assert as_(who).get(f"/admin/tools_app/call/exports/{export.pk}/{view}").status_code == 404
        assert str(export.pk) not in as_(who).get("/admin/tools_app/call/exports/").content.decode()
    assert str(export.pk) in as_("auditor").get("/admin/tools_app/call/exports/").content.decode()


def test_who_lost_the_tenant_downloads_nothing_of_it(as_: Any, acme: World, globex: World, people: Any) -> None:
    client = as_("auditor")
    export = started(client, with_payloads="1")
    Membership.objects.filter(user=people["auditor"]).update(tenant=globex.tenant)
    assert {exported["tenant"] for exported in objects_of(client, export)} == {"globex"}


@pytest.mark.parametrize("who", ["outsider", "anonymous"])
def test_who_has_no_tenant_exports_nothing(as_: Any, acme: World, who: str) -> None:
    as_(who).post(START, {"format": "csv"})
    assert not Export.objects.exists()


@pytest.mark.parametrize("fields", [{"format": "xml"}, {"query": "key=no"}, {}])
def test_what_makes_no_sense_is_not_exported(as_: Any, acme: World, fields: dict[str, str]) -> None:
    response = as_("auditor").post(START, fields, follow=True)
    assert "Not exported" in response.content.decode()
    assert not Export.objects.exists()


def test_an_operator_cannot_export_what_a_text_finds(acme: World) -> None:
    client = Client()
    client.force_login(person("operator", acme.tenant, Role.OPERATOR))
    response = client.post(START, {"format": "csv", "query": "text=words"}, follow=True)
    assert "cannot be searched" in response.content.decode()
    assert not Export.objects.exists()


def test_each_export_is_a_change_of_the_tenants_whose_calls_it_has(as_: Any, acme: World, globex: World) -> None:
    started(as_("auditor"), query="tool=a", with_payloads="1")
    started(as_("superuser"))
    of_tenant, all_of_them = Change.objects.filter(action=Action.EXPORTED).order_by("position")
    assert (of_tenant.tenant_id, of_tenant.person_name, of_tenant.kind) == (acme.tenant.pk, "auditor", "export")
    assert json.loads(of_tenant.after)["with_payloads"] is True
    assert all_of_them.tenant_id is None


def test_a_client_that_goes_away_closes_the_pieces(acme: World) -> None:
    closed = []

    def pieces() -> Iterator[bytes]:
        try:
            while True:
                yield b"piece"
        finally:
            closed.append(True)

    async def take_one() -> bytes:
        content = exports._later(pieces())
        first = await anext(content)
        await content.aclose()
        return first

    assert asyncio.run(take_one()) == b"piece"
    assert closed == [True]


# --- By the command line -----------------------------------------------------------------------------------------


def test_the_command_writes_the_same_file(acme: World, globex: World, tmp_path: Any, capsys: Any) -> None:
    file = tmp_path / "calls.csv"
    call_command("export_calls", tenant=["acme"], format="csv", output=file, with_payloads=True)
    (row,) = rows_in(file.read_bytes())
    assert row["arguments"] == '{"term": "acme words"}'
    assert "1 calls" in capsys.readouterr().err
    change = Change.objects.get(action=Action.EXPORTED)
    assert (change.tenant_id, change.via) == (acme.tenant.pk, "command")


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"tenant": ["nobody"]}, "Unknown tenant"),
        ({"since": ["soon"]}, "--since: Write a day"),
        ({"duration_min": ["x"]}, "--duration-min: Write a whole"),
    ],
)
def test_the_command_says_what_to_mend(db: None, options: dict[str, Any], advice: str) -> None:
    with pytest.raises(CommandError, match=advice):
        call_command("export_calls", **options)


def test_the_command_overwrites_nothing(acme: World, tmp_path: Any) -> None:
    file = tmp_path / "there"
    file.write_text("mine")
    with pytest.raises(CommandError, match="already"):
        call_command("export_calls", output=file)
    assert file.read_text() == "mine"


def test_events_of_a_call_come_in_their_order(as_: Any, acme: World) -> None:
    Call.objects.update(event_count=3)
    for sequence in (3, 2):
        CallEvent.objects.create(call=acme.call, sequence=sequence, kind="log", data=f'{{"n": {sequence}}}')
    client = as_("auditor")
    (exported,) = objects_of(client, started(client, with_payloads="1"))
    assert [event["data"] for event in exported["events"]][1:] == [{"n": 2}, {"n": 3}]
