"""Deliveries of alerts: signatures, retries, giving up, and one sender at a time."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest
from django.core import mail
from django.utils import timezone
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.documented.blocks import blocks
from tests.web_services import Service, http_response, serve  # noqa: F401 - a fixture
from tools_app.alerts import delivery, destinations, evaluation
from tools_app.alerts.models import AlertDelivery, AlertDestination, DeliveryStatus
from tools_app.models import Tenant

# The delivery runs its own event loop, in another thread than the service.
pytestmark = pytest.mark.django_db
Serve = Callable[..., Service]


def add_webhook(url: str, networks: tuple[str, ...] = ("127.0.0.0/8",)) -> tuple[AlertDestination, str]:
    tenant = Tenant.objects.create(slug="acme", name="Acme", allowed_networks=list(networks))
    row = AlertDestination(tenant=tenant, name="hook", kind="webhook", url=url)
    secret = destinations.add_secret(row)
    row.save()
    return row, secret


def deliver(row: AlertDestination) -> AlertDelivery:
    """Send a test message, and return the stored delivery."""
    found = evaluation.send_test(row)
    assert delivery.attempt(found.pk)
    found.refresh_from_db()
    return found


def make_due(row: AlertDelivery) -> None:
    AlertDelivery.objects.filter(pk=row.pk).update(next_attempt_at=timezone.now())


def test_a_webhook_receives_a_signed_message(serve: Serve) -> None:  # noqa: F811
    service = serve(http_response(204))
    row, secret = add_webhook(f"{service.url}/hook")
    found = deliver(row)
    assert (found.status, found.response_status, found.attempts) == (DeliveryStatus.DELIVERED, 204, 1)
    [request] = service.received
    headers = request.headers
    assert headers["webhook-id"] == f"msg_{found.pk.hex}"
    assert orjson.loads(request.body)["type"] == "alert.test"
    documented: dict[str, Any] = {}
    [receiver] = (one for one in blocks("python") if "webhook-signature" in one.text)
    exec(compile(receiver.text, str(receiver), "exec"), documented)
    assert documented["is_authentic"](headers, request.body, secret)
    assert not documented["is_authentic"](headers, request.body + b" ", secret)
    assert secret.encode() not in bytes(row.ciphertext or b"")


def test_after_a_rotation_both_secrets_sign_until_the_overlap_ends(serve: Serve) -> None:  # noqa: F811
    service = serve(http_response(200))
    row, old = add_webhook(service.url)
    new = destinations.rotate_secret(row)
    assert destinations.signing_secrets(row) == [new, old]
    deliver(row)
    [request] = service.received
    assert request.headers["webhook-signature"].count("v1,") == 2
    for secret in (old, new):
        assert Webhook(secret).verify(request.body, dict(request.headers))["type"] == "alert.test"
    with pytest.raises(WebhookVerificationError):
        Webhook(destinations.add_secret(AlertDestination())).verify(request.body, dict(request.headers))
    row.previous_secret_until = timezone.now()
    assert destinations.signing_secrets(row) == [new]


def test_a_failed_delivery_is_retried_with_growing_pauses_and_the_same_id_then_given_up(
    serve: Serve,  # noqa: F811
) -> None:
    service = serve(http_response(500))
    row, _ = add_webhook(service.url)
    found = deliver(row)
    assert not delivery.attempt(found.pk), "it is not due"
    for attempts, pause in enumerate(delivery.RETRY_SECONDS, start=1):
        assert found.status == DeliveryStatus.PENDING
        wait = (found.next_attempt_at - timezone.now()).total_seconds()  # type: ignore[operator]
        assert pause * 0.5 < wait <= pause * (1 + delivery.JITTER)
        assert found.attempts == attempts
        make_due(found)
        assert delivery.deliver_due() == 1
        found.refresh_from_db()
    assert found.status == DeliveryStatus.FAILED
    assert found.error == "The webhook answered with HTTP status 500."
    assert len({request.headers["webhook-id"] for request in service.received}) == 1
    assert delivery.deliver_due() == 0


def test_a_webhook_that_is_gone_is_disabled(serve: Serve) -> None:  # noqa: F811
    row, _ = add_webhook(serve(http_response(410)).url)
    assert deliver(row).status == DeliveryStatus.FAILED
    row.refresh_from_db()
    assert (row.enabled, row.disabled_reason) == (False, delivery.GONE_REASON)
    assert deliver(row).error == delivery.DISABLED


def test_a_webhook_whose_url_was_corrected_meanwhile_stays_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    row, _ = add_webhook("https://old.example.com/hook")

    def answer_late(_message: AlertDelivery) -> delivery.DeliveryResult:
        AlertDestination.objects.filter(pk=row.pk).update(url="https://new.example.com/hook")
        return delivery.DeliveryResult("The webhook is gone.", status=delivery.GONE, is_final=True)

    monkeypatch.setattr(delivery, "send", answer_late)
    deliver(row)
    row.refresh_from_db()
    assert (row.enabled, row.disabled_reason) == (True, "")


def test_a_redirect_is_not_followed(serve: Serve) -> None:  # noqa: F811
    service = serve(http_response(302, Location="/elsewhere"))
    row, _ = add_webhook(service.url)
    assert deliver(row).error == "The webhook answered with HTTP status 302."
    assert len(service.received) == 1


def test_a_private_address_is_refused_unless_the_tenant_may_reach_it(serve: Serve) -> None:  # noqa: F811
    service = serve(http_response(200))
    row, _ = add_webhook(service.url, networks=())
    found = deliver(row)
    assert found.status == DeliveryStatus.PENDING
    assert "is private or reserved. A hub admin can allow it under Tenant > Allowed networks." in found.error
    assert service.received == []


def test_a_webhook_of_the_whole_hub_goes_to_public_addresses_only(serve: Serve) -> None:  # noqa: F811
    service = serve(http_response(200))
    row, _ = add_webhook(service.url)
    AlertDestination.objects.update(tenant=None)
    row.refresh_from_db()
    assert "is private or reserved. The hub sends this request to public addresses only" in deliver(row).error
    assert service.received == []


def test_a_message_that_another_process_holds_is_left_until_its_lease_ends(serve: Serve) -> None:  # noqa: F811
    row, _ = add_webhook(serve(http_response(200)).url)
    found = evaluation.send_test(row)
    AlertDelivery.objects.update(claimed_until=timezone.now() + timedelta(seconds=30))
    assert not delivery.attempt(found.pk)
    assert delivery.deliver_due() == 0
    AlertDelivery.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert delivery.deliver_due() == 1


def test_an_email_is_one_plain_message(settings: Any) -> None:
    settings.MCPHUB_EMAIL_URL = "smtp://mail.example.com"
    row = AlertDestination.objects.create(name="ops", kind="email", email="ops@example.com")
    assert deliver(row).status == DeliveryStatus.DELIVERED
    [message] = mail.outbox
    assert (message.subject, message.to) == ("[mcphub] Test: ops", ["ops@example.com"])
    assert "This is a test message." in message.body


def test_without_a_mail_server_the_delivery_says_what_to_set(settings: Any) -> None:
    settings.MCPHUB_EMAIL_URL = ""
    row = AlertDestination.objects.create(name="ops", kind="email", email="ops@example.com")
    found = deliver(row)
    assert (found.status, found.error) == (DeliveryStatus.FAILED, delivery.NO_MAIL)


def test_a_webhook_without_a_url_says_so() -> None:
    row, _ = add_webhook("")
    found = deliver(row)
    assert (found.status, found.error) == (DeliveryStatus.FAILED, delivery.NO_URL)


def test_a_tenant_sends_a_bounded_number_of_emails_in_an_hour(settings: Any, monkeypatch: Any) -> None:
    settings.MCPHUB_EMAIL_URL = "smtp://mail.example.com"
    monkeypatch.setattr(delivery, "MAX_EMAILS_PER_HOUR", 1)
    row = AlertDestination.objects.create(name="ops", kind="email", email="ops@example.com")
    deliver(row)
    assert deliver(row).status == DeliveryStatus.FAILED
    assert len(mail.outbox) == 1


def test_a_message_that_fails_in_a_way_that_nobody_foresaw_is_given_up_in_the_end(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.MCPHUB_EMAIL_URL = "smtp://mail.example.com"
    row = AlertDestination.objects.create(name="ops", kind="email", email="ops@example.com")

    def fail(*_arguments: Any) -> None:
        raise KeyError("nobody foresaw it")

    with monkeypatch.context() as patched:
        patched.setattr(delivery, "email_of", fail)
        found = deliver(row)
        assert (found.status, found.claimed_until) == (DeliveryStatus.PENDING, None)
        assert found.error == "The message could not be sent (KeyError)."
        for _ in delivery.RETRY_SECONDS:
            make_due(found)
            assert delivery.deliver_due() == 1
    found.refresh_from_db()
    assert found.status == DeliveryStatus.FAILED


def test_a_result_that_cannot_be_recorded_does_not_stop_the_other_messages(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.MCPHUB_EMAIL_URL = "smtp://mail.example.com"
    row = AlertDestination.objects.create(name="ops", kind="email", email="ops@example.com")
    first, second = (evaluation.send_test(row) for _ in range(2))
    record = delivery._record

    def fail_once(found: AlertDelivery, result: delivery.DeliveryResult) -> None:
        if found.pk == first.pk:
            raise OSError("disk full")
        record(found, result)

    monkeypatch.setattr(delivery, "_record", fail_once)
    assert delivery.deliver_due() == 2
    second.refresh_from_db()
    assert second.status == DeliveryStatus.DELIVERED


def test_slow_receivers_of_one_tenant_delay_the_others_once(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery.slow_tenants.stop()
    rows = []
    for slug in ("slow", "quick"):
        tenant = Tenant.objects.create(slug=slug, name=slug)
        row = AlertDestination.objects.create(tenant=tenant, name="mail", kind="email", email="a@example.com")
        rows += [evaluation.send_test(row) for _ in range(2)]
    slow, again, quick, last = (row.pk for row in rows)
    clock, tried = [0.0], []

    def attempt(delivery_id: Any) -> bool:
        tried.append(delivery_id)
        clock[0] += 10 if delivery_id in (slow, again) else 0
        return True

    monkeypatch.setattr(delivery, "attempt", attempt)
    monkeypatch.setattr(delivery, "monotonic", lambda: clock[0])
    assert delivery.deliver_due() == 3
    assert tried == [slow, quick, last]
    # In the next run they are last, and however many they are, others are among those that are looked at.
    tried.clear()
    monkeypatch.setattr(delivery, "MAX_RUN_SECONDS", 5)
    monkeypatch.setattr(delivery, "BATCH", 2)
    assert delivery.deliver_due() == 2
    assert tried == [quick, slow]
    assert delivery.deliver_due(lambda: False) == 0
