"""Concurrent evaluation and delivery of alerts by several processes, on PostgreSQL."""

import json

from tests.services.stack import Stack

TWO_AT_ONCE = """
import json
import threading
from datetime import timedelta
from uuid import uuid4
from django.db import connection
from django.utils import timezone
from tools_app.alerts import delivery, evaluation
from tools_app.audit.stats import counters
from tools_app.models import *

ROUNDS = 10
tenant = Tenant.objects.create(slug=uuid4().hex, name="Alerts")
mail = AlertDestination.objects.create(tenant=tenant, name="mail", kind="email", email="a@example.com")
facts = {"tenant": tenant, "kind": "denials", "threshold": 1, "window_minutes": 360, "quiet_minutes": 30}
rules = [AlertRule.objects.create(**facts, name=f"rule {number}") for number in range(ROUNDS)]
for rule in rules:
    rule.destinations.set([mail])
figures = CallFigures.objects.create(
    tenant_id=tenant.pk,
    begins_at=counters.period_of(timezone.now()),
    seconds=counters.SECONDS,
    writer=uuid4(),
    tool_name="",
    api_key_id=counters.NIL,
    denials=5,
)
now, problems, connections = timezone.now(), [], set()

def at_once(work):
    gate = threading.Barrier(2, timeout=30)
    def run():
        try:
            connection.ensure_connection()
            connections.add(connection.connection.info.backend_pid)
            for rule in rules:
                gate.wait()
                work(rule)
        except Exception as problem:
            problems.append(repr(problem))
            gate.abort()
        finally:
            connection.close()
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

def events():
    rows = AlertDelivery.objects.filter(tenant=tenant).order_by("event").values_list("event", flat=True)
    return {event: list(rows).count(event) for event in rows}

found = []
for later in (0, 31):
    at_once(lambda rule: evaluation.evaluate_rule(rule.pk, now + timedelta(minutes=later)))
    found.append(events())
tried = []
at_once(lambda rule: tried.extend(
    delivery.attempt(pk) for pk in AlertDelivery.objects.filter(alert__rule=rule).values_list("pk", flat=True)
))
AlertDelivery.objects.filter(tenant=tenant).delete()
figures.delete()
at_once(lambda rule: evaluation.evaluate_rule(rule.pk, now + timedelta(minutes=32)))
found.append(events())
open_alerts = Alert.objects.filter(tenant=tenant, resolved_at=None).count()
attempts = sum(tried)
alerts = Alert.objects.filter(tenant=tenant).count()
print(json.dumps([found, attempts, open_alerts, alerts, len(connections), problems]))
tenant.delete()
"""


def test_two_evaluations_at_once_notify_once_and_no_message_is_sent_twice(stack: Stack) -> None:
    found, attempts, still_open, alerts, connections, problems = json.loads(stack.shell(TWO_AT_ONCE))
    assert problems == []
    assert connections >= 2
    assert found == [
        {"alert.fired": 10},
        {"alert.fired": 10, "alert.reminder": 10},
        {"alert.resolved": 10},
    ]
    assert attempts == 10, "the reminders are not due yet"
    assert (alerts, still_open) == (10, 0)
