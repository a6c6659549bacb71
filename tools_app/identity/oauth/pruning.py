"""Pruning of sign-in: expired codes, tokens, assertions and logins, clients without a connection, old events."""

from datetime import timedelta
from typing import Final

from django.contrib.sessions.models import Session
from django.utils import timezone

from tools_app.identity import single_use
from tools_app.identity.oauth import clients, tokens, workloads
from tools_app.models import SignInEvent

EVERY_SECONDS: Final = 600.0
# A used code is kept as long as its replay tells something.
KEEP_EXPIRED: Final = timedelta(hours=1)
KEEP_EVENTS: Final = timedelta(days=90)


def prune() -> None:
    """Delete what sign-in no longer needs."""
    now = timezone.now()
    tokens.prune(now - KEEP_EXPIRED)
    workloads.prune(now)
    single_use.prune(now)
    clients.prune()
    # Strangers have sessions, too, from the moment at which they begin to sign in.
    Session.objects.filter(expire_date__lt=now).delete()
    SignInEvent.objects.filter(at__lt=now - KEEP_EVENTS).delete()
