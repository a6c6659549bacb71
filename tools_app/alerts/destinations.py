"""Rules and destinations of alerts as people set them up: bounds, webhook secrets and their rotation."""

import base64
import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from tools_app.alerts.models import AlertDestination, AlertRule
from tools_app.audit.changes import changes
from tools_app.core import encryption
from tools_app.models import Action

MAX_RULES: Final = 50
MAX_DESTINATIONS: Final = 20
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the prefix of the specification, not a secret
SECRET_BYTES: Final = 32
# For so long after a rotation, messages are signed with the previous secret, too.
SECRET_OVERLAP: Final = timedelta(hours=24)


def check_count(row: AlertRule | AlertDestination) -> None:
    """Reject a new row beyond the maximum of its tenant. Raises ValidationError."""
    maximum = MAX_RULES if isinstance(row, AlertRule) else MAX_DESTINATIONS
    rows: models.QuerySet[Any] = type(row)._default_manager.filter(tenant=row.tenant_id)
    if not rows.filter(pk=row.pk).exists() and rows.count() >= maximum:
        raise ValidationError(f"There are already {maximum} {row._meta.verbose_name_plural}. Delete one first.")


def set_recipients(rule: AlertRule, chosen: Collection[AlertDestination]) -> None:
    """Replace the destinations of a rule and record the change. Call it in a transaction."""
    before = sorted(rule.destinations.values_list("name", flat=True))
    after = sorted(row.name for row in chosen)
    rule.destinations.set(chosen)
    if before != after:
        changes.record(Action.CHANGED, rule, before={"destinations": before}, after={"destinations": after})


def add_secret(row: AlertDestination) -> str:
    """Give a new webhook its secret, unsaved, and return the secret."""
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    row.ciphertext = encryption.seal(secret.encode(), _purpose(row))
    return secret


def rotate_secret(row: AlertDestination) -> str:
    """Replace the secret of a webhook and return the new one. Both sign for `SECRET_OVERLAP`."""
    row.previous_ciphertext, row.previous_secret_until = row.ciphertext, timezone.now() + SECRET_OVERLAP
    secret = add_secret(row)
    row.save(update_fields=["ciphertext", "previous_ciphertext", "previous_secret_until"])
    return secret


def signing_secrets(row: AlertDestination) -> list[str]:
    """Return the secrets that sign now, the newest first. Raises encryption.DecryptionError."""
    ciphertexts = [row.ciphertext]
    if row.previous_secret_until and row.previous_secret_until > timezone.now():
        ciphertexts.append(row.previous_ciphertext)
    return [encryption.unseal(bytes(ciphertext), _purpose(row)).decode() for ciphertext in ciphertexts if ciphertext]


def _purpose(row: AlertDestination) -> str:
    return f"alert-destination:{row.pk}"
