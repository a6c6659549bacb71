"""Invitation links sent by e-mail, if the hub has a mail server (MCPHUB_EMAIL_URL)."""

import smtplib
from typing import Final

from django.conf import settings
from django.core.mail import send_mail

from tools_app.core.ids import new_id
from tools_app.models import Invitation
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

MAX_AN_HOUR: Final = 50
HOUR_SECONDS: Final = 3600.0

TEXT: Final = """\
{who} invites you to {tenant} on mcphub, as {role}.

Open this link to join; it works once, until {until} UTC:

{link}

Anyone with the link can use it: do not forward it. If you did not expect an invitation, ignore this message.
"""


class NotSent(Exception):
    """The mail server did not accept the e-mail; the message says why."""


def is_possible() -> bool:
    """Whether the hub can send e-mail."""
    return bool(settings.MCPHUB_EMAIL_URL)


def send(row: Invitation, link: str) -> None:
    """Send the link, made by `invitations.mailed`, to the invited address.

    Raises NotSent, also if the tenant has sent too many: the hub is no mail relay.
    """
    places = [ConcurrencyLimit("tenant", "invitations", MAX_AN_HOUR, f"mail:{row.tenant_id}")]
    if limits.acquire_here(places, str(new_id()), HOUR_SECONDS) is not None:
        raise NotSent(f"The e-mail was not sent: {MAX_AN_HOUR} invitations of a tenant are sent in an hour")
    tenant = " ".join(row.tenant.name.split())
    context = {
        "who": row.invited_by.get_username() if row.invited_by else "Somebody",
        "tenant": tenant,
        "role": row.get_role_display().lower(),
        "until": f"{row.expires_at:%Y-%m-%d %H:%M}",
        "link": link,
    }
    try:
        send_mail(f"Invitation to {tenant}", TEXT.format(**context), None, [row.email])
    except (OSError, smtplib.SMTPException) as problem:
        raise NotSent(f"The e-mail was not sent: {problem}") from problem
