"""Records of changes that are saved or deleted through the ORM, without a call by the code that makes them.

These are signals, where the rest of the hub calls services, so that an admin page, endpoint or command added later
cannot omit the record. Code that uses `.update()` calls `changes.record` itself.

The fields of a changed row are recorded as JSON values, without secrets and noise.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.db.models.signals import post_delete, post_save, pre_delete, pre_save

from tools_app.audit.changes import changes
from tools_app.models import (
    Action,
    AlertDestination,
    AlertRule,
    ApiKey,
    ApiSource,
    ClientPolicy,
    Connection,
    DirectoryGroup,
    DirectoryUser,
    Invitation,
    Issuer,
    Membership,
    OAuthClient,
    PersonalToken,
    Prompt,
    Resource,
    Secret,
    ServiceClient,
    Tenant,
    TenantScope,
    Tool,
    Toolset,
    Upstream,
    UpstreamCredential,
)

Values = Mapping[str, Any]

# Never recorded: what identifies the row besides its name and tenant, what the hub itself writes, digests of secrets,
# and copies of texts that are there to be compared.
NOT_RECORDED: Final = frozenset(
    {
        "id",
        "tenant",
        "catalog_version",
        "changed_at",
        "created_at",
        "consented_at",
        "created_by",
        "date_joined",
        "digest",
        "display_name_key",
        "emails_key",
        "generated",
        "invited_by",
        "last_login",
        "last_used_at",
        "network",
        "previous_ciphertext",
        "refresh_at",
        "updated_at",
        "user_name_key",
    }
)
# Only the fact that these changed is recorded, under this name.
SECRET_FIELDS: Final = {
    "password": "password",
    "ciphertext": "value",
    "url": "url",
    "secret_digest": "secret",
    # What a directory says of a person: the change log outlasts them.
    "resource": "attributes",
}
CHANGED: Final = "changed"
EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


def stored_values(row: models.Model) -> Values | None:
    """Return the stored columns of a row; None if the database has no such row."""
    return type(row)._default_manager.filter(pk=row.pk).values(*_columns(row)).first()


def current_values(row: models.Model) -> Values:
    """Return the columns of a row as they are in memory."""
    return {name: getattr(row, name) for name in _columns(row)}


def difference(row: models.Model, old: Values, new: Values, only: Iterable[str] | None = None) -> tuple[Values, Values]:
    """Return the recorded fields in which two states of a row differ: before and after.

    `only`: the names of the fields that were written; None for all.
    """
    written = None if only is None else set(only)
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for field in _recorded_fields(row):
        if written is not None and not written & {field.name, field.attname}:
            continue
        one, other = plain(field, old[field.attname]), plain(field, new[field.attname])
        if one == other:
            continue
        if field.name in SECRET_FIELDS:
            after[SECRET_FIELDS[field.name]] = CHANGED
        else:
            before[field.name], after[field.name] = one, other
    return before, after


def filled(row: models.Model, values: Values) -> Values:
    """Return the recorded fields of a row that are not empty, for a created or deleted row."""
    recorded = {
        field.name: plain(field, values[field.attname])
        for field in _recorded_fields(row)
        if field.name not in SECRET_FIELDS
    }
    return {name: value for name, value in recorded.items() if value not in EMPTY}


def plain(field: "models.Field[Any, Any]", value: Any) -> Any:
    """Return the value of a field as JSON: for bytes, their length and SHA-256; for a person or a toolset, the name."""
    if isinstance(field, models.ForeignKey) and field.related_model is Toolset and value is not None:
        return Toolset.objects.filter(pk=value).values_list("name", flat=True).first() or str(value)
    match value:
        case bytes() | bytearray() | memoryview():
            return {"bytes": len(bytes(value)), "sha256": sha256(bytes(value)).hexdigest()} if value else None
        case datetime():
            return value.isoformat()
        case UUID():
            return str(value)
    if isinstance(field, models.ForeignKey) and field.related_model is User and value is not None:
        return User.objects.filter(pk=value).values_list("username", flat=True).first() or value
    return value


def _recorded_fields(row: models.Model) -> "list[models.Field[Any, Any]]":
    # Deferred fields are not written either.
    omitted = NOT_RECORDED | row.get_deferred_fields()
    return [field for field in row._meta.concrete_fields if field.name not in omitted]


def _columns(row: models.Model) -> list[str]:
    return [field.attname for field in _recorded_fields(row)]


RECORDED: Final = (
    Tenant,
    Membership,
    ApiKey,
    Tool,
    Resource,
    Prompt,
    Secret,
    User,
    Invitation,
    PersonalToken,
    AlertRule,
    AlertDestination,
    Connection,
    ClientPolicy,
    OAuthClient,
    Issuer,
    DirectoryUser,
    DirectoryGroup,
    ServiceClient,
    TenantScope,
    ApiSource,
    Upstream,
    UpstreamCredential,
    Toolset,
)
Fields = frozenset[str] | None

# The attribute that holds a row's previous state until it is saved.
BEFORE: Final = "_before_change"


def connect() -> None:
    """Connect the signals of every model whose changes are recorded."""
    for model in RECORDED:
        name = f"changes of {model._meta.label}"
        pre_save.connect(_before_save, sender=model, dispatch_uid=name)
        post_save.connect(_after_save, sender=model, dispatch_uid=name)
        pre_delete.connect(_before_delete, sender=model, dispatch_uid=name)
        post_delete.connect(_after_delete, sender=model, dispatch_uid=name)


def _before_save(instance: models.Model, update_fields: Fields = None, **_options: Any) -> None:
    # A login saves its time outside a transaction, and is not recorded.
    if changes.actor() is not None and not _is_noise(update_fields):
        changes.lock_change_log()
        vars(instance)[BEFORE] = stored_values(instance)


def _after_save(instance: models.Model, update_fields: Fields = None, **_options: Any) -> None:
    if changes.actor() is None or _is_noise(update_fields):
        return
    old = vars(instance).pop(BEFORE, None)
    if old is None:
        after = filled(instance, current_values(instance))
        changes.record(Action.CREATED, instance, after=after)
        return
    before, after = difference(instance, old, current_values(instance), update_fields)
    if after:
        changes.record(Action.CHANGED, instance, before=before, after=after)


def _before_delete(instance: models.Model, **_options: Any) -> None:
    changes.lock_change_log()
    if changes.actor() is not None and instance.get_deferred_fields():
        instance.refresh_from_db(fields=list(instance.get_deferred_fields()))


def _after_delete(instance: models.Model, **_options: Any) -> None:
    if changes.actor() is not None:
        before = filled(instance, current_values(instance))
        try:
            name = str(instance)
        except ObjectDoesNotExist:
            # The rows that its name refers to are deleted.
            name = str(instance.pk)
        changes.record(Action.DELETED, instance, before=before, name=name)


def _is_noise(update_fields: Fields) -> bool:
    return update_fields is not None and NOT_RECORDED.issuperset(update_fields)
