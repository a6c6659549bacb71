"""Deliveries of alerts: claimed with a lease, sent by e-mail or as a signed webhook, and retried.

Webhooks are signed as the Standard Webhooks specification says. A message may arrive twice if a process dies between
sending and recording it: its `webhook-id` is the same.
"""

import asyncio
import logging
import math
import random
import smtplib
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any, Final, NamedTuple

import orjson
from django.conf import settings
from django.core.mail import send_mail
from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.utils import timezone
from standardwebhooks.webhooks import Webhook

from tools_app.alerts import destinations
from tools_app.alerts.models import MAX_ERROR_LENGTH, AlertDelivery, AlertDestination, DeliveryStatus, DestinationKind
from tools_app.core import encryption, leases
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.client import Outbound, RequestPolicy, exchange
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.core.process.runtime import Service

log = logging.getLogger(__name__)

# The pauses before each further attempt.
RETRY_SECONDS: Final = (5, 60, 300, 1800, 7200)
JITTER: Final = 0.2
TIMEOUT_SECONDS: Final = 10.0
MAX_RESPONSE_BYTES: Final = 64 * 1024
# Longer than an attempt can take.
LEASE_DURATION: Final = timedelta(seconds=60)
BATCH: Final = 500
TENANT_BATCH: Final = 20
# The same thread evaluates the rules.
MAX_RUN_SECONDS: Final = 15.0
SLOW_SECONDS: Final = 1.0
# The hub is no mail relay.
MAX_EMAILS_PER_HOUR: Final = 100
GONE: Final = 410

NO_MAIL: Final = "This hub cannot send e-mail. Set MCPHUB_EMAIL_URL."
DISABLED: Final = "The destination is disabled."
NO_URL: Final = "The webhook has no URL. Set it on the page of the destination."
GONE_REASON: Final = "The webhook answered 410 Gone."


class DeliveryResult(NamedTuple):
    """The end of an attempt: no `error` means delivered. `is_final`: another attempt would not help."""

    error: str = ""
    status: int | None = None
    is_final: bool = False


def deliver_due(may_continue: Callable[[], bool] = lambda: True) -> int:
    """Send the messages that are due, one of each tenant in turn, and return how many were tried.

    It stops when `may_continue` says so, or after MAX_RUN_SECONDS. A tenant with a message that took longer than
    SLOW_SECONDS waits for the next run, and is last there, so that its slow receivers do not add up for the others.
    """
    now, attempts = timezone.now(), 0
    due = AlertDelivery.objects.filter(leases.free(now), status=DeliveryStatus.PENDING, next_attempt_at__lte=now)
    of_tenant = Window(RowNumber(), partition_by="tenant_id", order_by="next_attempt_at")
    first = due.annotate(number=of_tenant).filter(number__lte=TENANT_BATCH).order_by("number", "next_attempt_at")
    due_by_tenant: defaultdict[Any, deque[Any]] = defaultdict(deque)
    for tenant_id, delivery_id in first.values_list("tenant_id", "pk")[:BATCH]:
        due_by_tenant[tenant_id].append(delivery_id)
    deadline = monotonic() + MAX_RUN_SECONDS
    slow = slow_tenants()
    while due_by_tenant:
        for tenant_id in sorted(due_by_tenant, key=lambda tenant_id: slow.get(tenant_id, -math.inf)):
            started_at = monotonic()
            if started_at >= deadline or not may_continue():
                return attempts
            attempts += _attempt_or_log(due_by_tenant[tenant_id].popleft())
            is_slow = monotonic() - started_at > SLOW_SECONDS
            slow.pop(tenant_id, None)
            if is_slow:
                slow[tenant_id] = started_at
            if is_slow or not due_by_tenant[tenant_id]:
                del due_by_tenant[tenant_id]
    return attempts


# The tenants whose last message was slow, and when that was.
slow_tenants: Service[[], dict[Any, float]] = Service(dict)


def _attempt_or_log(delivery_id: Any) -> bool:
    """Send one message; one whose result cannot be recorded does not stop the others. It is sent again."""
    try:
        return attempt(delivery_id)
    except Exception as problem:  # noqa: BLE001 - the others are sent all the same
        log.warning("The message %s is postponed: %s", delivery_id, problem)
        return True


def attempt(delivery_id: Any) -> bool:
    """Send one message, unless another process holds it or it is not due; return whether it was tried."""
    now = timezone.now()
    due = AlertDelivery.objects.filter(pk=delivery_id, status=DeliveryStatus.PENDING, next_attempt_at__lte=now)
    if not leases.claim(due, LEASE_DURATION, attempts=F("attempts") + 1):
        return False
    row = AlertDelivery.objects.select_related("destination__tenant").get(pk=delivery_id)
    try:
        result = send(row)
    except Exception as problem:  # an unexpected error must not be retried forever
        log.exception("The message %s cannot be sent", delivery_id)
        result = DeliveryResult(f"The message could not be sent ({type(problem).__name__}).")
    _record(row, result)
    return True


def send(row: AlertDelivery) -> DeliveryResult:
    """Send a claimed message."""
    if not row.destination.enabled:
        return DeliveryResult(DISABLED, is_final=True)
    if row.destination.kind == DestinationKind.EMAIL:
        return _send_email(row)
    if not row.destination.url:
        # Imported from a file, which does not contain it.
        return DeliveryResult(NO_URL, is_final=True)
    try:
        return asyncio.run(_send_webhook(row))
    except (encryption.DecryptionError, InvalidUrl) as problem:
        return DeliveryResult(
            f"The webhook cannot be called: {problem}. Rotate its secret or correct its URL.", is_final=True
        )


def _record(row: AlertDelivery, result: DeliveryResult) -> None:
    now = timezone.now()
    row.claimed_until, row.response_status, row.error = None, result.status, result.error[:MAX_ERROR_LENGTH]
    if not result.error:
        row.status, row.next_attempt_at, row.finished_at = DeliveryStatus.DELIVERED, None, now
    elif result.is_final or row.attempts > len(RETRY_SECONDS):
        row.status, row.next_attempt_at, row.finished_at = DeliveryStatus.FAILED, None, now
    else:
        row.next_attempt_at = now + timedelta(seconds=retry_delay(row.attempts))
    row.save(update_fields=["claimed_until", "response_status", "error", "status", "next_attempt_at", "finished_at"])
    if result.status == GONE:
        # Only the URL that answered is gone: it may have been corrected meanwhile.
        answered = AlertDestination.objects.filter(pk=row.destination_id, url=row.destination.url)
        answered.update(enabled=False, disabled_reason=GONE_REASON)


def retry_delay(attempts: int) -> float:
    """Return the pause after a failed attempt, with jitter, so that many messages are not sent at once."""
    seconds = RETRY_SECONDS[min(attempts, len(RETRY_SECONDS)) - 1]
    return seconds * random.uniform(1, 1 + JITTER)  # noqa: S311 - no secret


async def _send_webhook(row: AlertDelivery) -> DeliveryResult:
    destination, message_id, now = row.destination, f"msg_{row.pk.hex}", timezone.now()
    signatures = [
        Webhook(secret).sign(message_id, now, row.body) for secret in destinations.signing_secrets(destination)
    ]
    headers = (
        ("Content-Type", "application/json"),
        ("User-Agent", "mcphub-alerts"),
        ("webhook-id", message_id),
        ("webhook-timestamp", str(int(now.timestamp()))),
        ("webhook-signature", " ".join(signatures)),
    )
    tenant = destination.tenant
    allowed = parse_networks(tenant.allowed_networks if tenant else ())
    policy = RequestPolicy(
        allowed, TIMEOUT_SECONDS, MAX_RESPONSE_BYTES, public_only=tenant is None, tenant=tenant and tenant.pk
    )
    try:
        reply = await exchange(Outbound("POST", parse_url(destination.url), headers, row.body.encode()), policy)
    except RequestFailed as problem:
        return DeliveryResult(problem.message)
    if reply.status < 200 or reply.status >= 300:  # noqa: PLR2004 - the range of success
        return DeliveryResult(
            f"The webhook answered with HTTP status {reply.status}.", reply.status, reply.status == GONE
        )
    return DeliveryResult(status=reply.status)


def can_send_email() -> bool:
    """Whether the hub has a mail server."""
    return bool(settings.MCPHUB_EMAIL_URL)


def _send_email(row: AlertDelivery) -> DeliveryResult:
    if not can_send_email():
        return DeliveryResult(NO_MAIL, is_final=True)
    if _emails_sent(row) >= MAX_EMAILS_PER_HOUR:
        return DeliveryResult(f"At most {MAX_EMAILS_PER_HOUR} e-mails are sent in an hour.", is_final=True)
    subject, text = email_of(row)
    try:
        send_mail(subject, text, None, [row.destination.email])
    except smtplib.SMTPRecipientsRefused:
        return DeliveryResult("The mail server refused the recipient.", is_final=True)
    except (OSError, smtplib.SMTPException) as problem:
        # Its text may repeat credentials.
        return DeliveryResult(f"The mail server did not accept the e-mail ({type(problem).__name__}).")
    return DeliveryResult()


def _emails_sent(row: AlertDelivery) -> int:
    return AlertDelivery.objects.filter(
        tenant=row.tenant_id,
        destination__kind=DestinationKind.EMAIL,
        status=DeliveryStatus.DELIVERED,
        created_at__gt=timezone.now() - timedelta(hours=1),
    ).count()


def email_of(row: AlertDelivery) -> tuple[str, str]:
    """Return subject and plain text of a message."""
    message = orjson.loads(row.body)
    data = message["data"]
    rule = data["rule"]["name"] if data["rule"] else "no rule"
    label = row.get_event_display()
    subject = " ".join(f"[mcphub] {label}: {rule if data['rule'] else row.destination.name}".split())
    lines = [
        data["summary"],
        "",
        f"Event:   {label}",
        f"Rule:    {rule}",
        f"Tenant:  {data['tenant'] or 'the whole hub'}",
        f"Time:    {message['timestamp']}",
    ]
    return subject, "\n".join([*lines, "", "An admin can change the rule under Alerts > Rules.", ""])
