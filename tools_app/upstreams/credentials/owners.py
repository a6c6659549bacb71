"""Who may still use a stored credential: a person who leaves the tenant or whose account is disabled loses theirs.

Such a row counts as missing at once. It is deleted with the membership or the account; what else is left, such as the
row of a revoked key, is looked for once a minute.
"""

from typing import Any, Final

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q
from django.db.models.signals import post_delete, post_save
from django.utils import timezone

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.models import Membership, UpstreamCredential

EVERY_SECONDS: Final = 60.0
BATCH: Final = 500
# What decides whether an account may use a tenant, besides its memberships.
ACCOUNT_FIELDS: Final = frozenset({"is_active", "is_superuser"})


def is_usable() -> Q:
    """Return the condition that a credential is the tenant's, or of a key or a person who may use the tenant."""
    is_unexpired = Q(key__expires_at=None) | Q(key__expires_at__gt=timezone.now())
    has_valid_key = Q(key__isnull=False, key__revoked_at=None) & is_unexpired
    # Also true without a connection, and of a service client.
    has_valid_connection = Q(key__connection__person=None) | _may_use_tenant("key__connection__person")
    return Q(key=None, person=None) | (has_valid_key & has_valid_connection) | _may_use_tenant("person")


def _may_use_tenant(person: str) -> Q:
    members = Membership.objects.filter(user=OuterRef(person), tenant=OuterRef("tenant"))
    has_access = Q(**{f"{person}__is_superuser": True}) | Q(Exists(members))
    return Q(**{f"{person}__is_active": True}) & has_access


def delete_unusable(**owner: Any) -> None:
    """Delete the credentials whose owners may not use them any more: all, or those of one owner."""
    usable = UpstreamCredential.objects.filter(is_usable()).values("pk")
    rows = UpstreamCredential.objects.filter(**owner).exclude(pk__in=usable)
    if not rows.exists():
        return
    with change_log_transaction():
        for row in rows.select_related("upstream", "key", "person")[:BATCH]:
            row.delete()


def connect_signals() -> None:
    """Delete credentials with the membership or the account that they depend on."""
    post_delete.connect(_delete_of_member, sender=Membership, dispatch_uid="credentials of a member who left")
    post_save.connect(_delete_of_account, sender=User, dispatch_uid="credentials of a disabled account")


def _delete_of_member(instance: Membership, **_options: Any) -> None:
    delete_unusable(person=instance.user_id, tenant=instance.tenant_id)


def _delete_of_account(
    instance: User, created: bool, update_fields: frozenset[str] | None = None, **_options: Any
) -> None:
    if not created and (update_fields is None or ACCOUNT_FIELDS & update_fields):
        delete_unusable(person=instance.pk)
