"""Saves and deletes through the ORM of what people set up, recorded without a word of the code that does them.

Signals, where the hub calls services elsewhere: an admin page, an endpoint or a command that is added later must not
be able to forget the record. What is written by `.update()` calls `changes.record` itself.
"""

from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.db.models.signals import post_delete, post_save, pre_delete, pre_save

from tools_app.audit import changed_fields, changes
from tools_app.audit.changed_fields import UNTOLD
from tools_app.models import (
    Action,
    ApiKey,
    Invitation,
    Membership,
    PersonalToken,
    Prompt,
    Resource,
    Secret,
    Tenant,
    Tool,
)

RECORDED: Final = (Tenant, Membership, ApiKey, Tool, Resource, Prompt, Secret, User, Invitation, PersonalToken)
Fields = frozenset[str] | None

# Where a row keeps what it was until it is saved.
BEFORE: Final = "_before_change"


def connect() -> None:
    """Listen to every model whose changes are recorded."""
    for model in RECORDED:
        name = f"changes of {model._meta.label}"
        pre_save.connect(_before_save, sender=model, dispatch_uid=name)
        post_save.connect(_after_save, sender=model, dispatch_uid=name)
        pre_delete.connect(_before_delete, sender=model, dispatch_uid=name)
        post_delete.connect(_after_delete, sender=model, dispatch_uid=name)


def _before_save(instance: models.Model, update_fields: Fields = None, **_options: Any) -> None:
    # A login writes its time in no transaction, and nobody need know.
    if changes.actor() is not None and not _is_noise(update_fields):
        changes.take_turn()
        vars(instance)[BEFORE] = changed_fields.stored(instance)


def _after_save(instance: models.Model, update_fields: Fields = None, **_options: Any) -> None:
    if changes.actor() is None or _is_noise(update_fields):
        return
    old = vars(instance).pop(BEFORE, None)
    if old is None:
        after = changed_fields.filled(instance, changed_fields.held(instance))
        changes.record(Action.CREATED, instance, after=after)
        return
    before, after = changed_fields.difference(instance, old, changed_fields.held(instance), update_fields)
    if after:
        changes.record(Action.CHANGED, instance, before=before, after=after)


def _before_delete(instance: models.Model, **_options: Any) -> None:
    changes.take_turn()
    if changes.actor() is not None and instance.get_deferred_fields():
        instance.refresh_from_db(fields=list(instance.get_deferred_fields()))


def _after_delete(instance: models.Model, **_options: Any) -> None:
    if changes.actor() is not None:
        before = changed_fields.filled(instance, changed_fields.held(instance))
        changes.record(Action.DELETED, instance, before=before, name=_name(instance))


def _is_noise(update_fields: Fields) -> bool:
    return update_fields is not None and UNTOLD.issuperset(update_fields)


def _name(row: models.Model) -> str:
    """What a row is called; what it is named after may be gone with it."""
    try:
        return str(row)
    except ObjectDoesNotExist:
        return str(row.pk)
