"""Claiming calls on PostgreSQL: a locked row does not block other calls, and each call is claimed once."""

import json
from typing import Any

from tests.services.stack import Stack

PREPARE = """
import json, threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from uuid import uuid4
from django.db import connection, transaction
from django.utils import timezone
from tools_app.calls.background import claims
from tools_app.calls.background.payload import CallPayload
from tools_app.calls.invocation import Round
from tools_app.models import RunningCall, Tenant
from tools_app.core.ids import new_id
tenant = Tenant.objects.create(slug=uuid4().hex, name="x")
def queued(count):
    now, ids = timezone.now(), [new_id() for _ in range(count)]
    RunningCall.objects.bulk_create(RunningCall(
        pk=id, tenant=tenant, tool_name="x", method="tools/call", request_id="1", protocol_version="2025-11-25",
        started_at=now, changed_at=now, status="queued", background=True, timeout_seconds=60, owner=uuid4(),
        sealed_arguments=CallPayload({}, {}, None, Round()).sealed(id),
    ) for id in ids)
    return ids
def claim(ids):
    try:
        return [str(id) for id in claims.claim_all(ids)]
    finally:
        connection.close()
"""


def run(stack: Stack, code: str) -> Any:
    """Run code after PREPARE in a process of the hub, and return the JSON that it prints."""
    return json.loads(stack.shell(PREPARE + code))


def test_a_call_whose_row_is_locked_is_claimed_once_it_is_free_and_the_others_before(stack: Stack) -> None:
    code = """
locked, *free = queued(3)
with ThreadPoolExecutor(1) as pool:
    with transaction.atomic():
        RunningCall.objects.select_for_update().get(pk=locked)
        claiming = pool.submit(claim, [locked, *free])
        until = monotonic() + 20
        while RunningCall.objects.filter(pk__in=free, status="running").count() < 2 and monotonic() < until:
            sleep(0.01)
        before = set(RunningCall.objects.filter(status="running", tenant=tenant).values_list("pk", flat=True))
    print(json.dumps([before == {*free}, sorted(claiming.result(20)) == sorted(map(str, [locked, *free]))]))
"""
    assert run(stack, code) == [True, True]


def test_calls_that_several_workers_ask_for_are_claimed_once(stack: Stack) -> None:
    code = """
ids = queued(200)
with ThreadPoolExecutor(4) as pool:
    claimed = [id for found in pool.map(claim, [ids, ids[::-1], ids[50:150], ids]) for id in found]
print(json.dumps([len(claimed), sorted(claimed) == sorted(map(str, ids))]))
"""
    assert run(stack, code) == [200, True]
