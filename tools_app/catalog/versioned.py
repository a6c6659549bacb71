"""Models that are compiled into a tenant's catalog: each write increases the catalog's version.

Every process compares the version at least once a second before it uses a compiled catalog. It is increased at this
level, below all code that writes: by `save`, `delete`, `update`, `bulk_create` and cascades, whichever field changes.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.db.models import F
from django.db.models.signals import post_delete, post_save, pre_save
from django.dispatch import Signal
from django.utils import timezone

from tools_app.core.notifications import publish
from tools_app.core.recorded import Recorded
from tools_app.tenants.models import Tenant

# Tools of a tenant; likewise its resources, prompts and secrets. A catalog is compiled and listed as a whole.
MAX_ROWS: Final = 5000

Row = TypeVar("Row", bound=models.Model)
# Sent with `tenant_id` after a change is committed.
catalog_changed: Final = Signal()

# Tenants whose version is increased at the end of a `touch_once` block; None outside of one.
_waiting: ContextVar[set[Any] | None] = ContextVar("waiting", default=None)
# The attribute that holds a row's previous tenant until it is saved.
_FORMER_TENANT: Final = "_former_tenant_id"


class VersionedQuerySet(models.QuerySet[Row]):
    """Increases the catalog versions of all tenants concerned when many rows are written at once."""

    def update(self, **values: Any) -> int:
        """Update rows like Django's method; also sets `updated_at`, unless it is given."""
        with transaction.atomic():
            # No DISTINCT: PostgreSQL does not allow it with select_for_update.
            tenant_of = dict(self.order_by().values_list("pk", "tenant_id"))
            changed = super().update(**{"updated_at": timezone.now(), **values})
            tenants = set(tenant_of.values())
            if not values.keys().isdisjoint({"tenant", "tenant_id"}):
                moved = self.model._default_manager.filter(pk__in=list(tenant_of))
                tenants.update(moved.values_list("tenant_id", flat=True))
            if changed:
                touch(tenants)
        return changed

    update.alters_data = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable[Row], *args: Any, **options: Any) -> list[Row]:
        """Create rows like Django's method."""
        rows = list(objs)
        with transaction.atomic():
            created = super().bulk_create(rows, *args, **options)
            touch({getattr(row, "tenant_id") for row in rows})  # noqa: B009 - a Row has any fields
        return created


class Versioned(Recorded):
    """The base class of rows with a `tenant` and an `updated_at` that a catalog is compiled from."""

    objects = VersionedQuerySet.as_manager()

    class Meta:
        abstract = True

    def clean(self) -> None:
        """Raise ValidationError for a new row of a tenant that has MAX_ROWS."""
        super().clean()
        tenant = vars(self)["tenant_id"]
        if self._state.adding and tenant:
            rows: models.QuerySet[Any] = type(self)._default_manager.all()
            check_count(type(self), rows.filter(tenant=tenant).count() + 1)


def check_count(model: type[models.Model], number: int) -> None:
    """Raise ValidationError if a tenant cannot have this number of rows of `model`."""
    if number > MAX_ROWS:
        raise ValidationError(f"A tenant has at most {MAX_ROWS} {model._meta.verbose_name_plural}. Delete one first.")


def touch(tenant_ids: Iterable[Any]) -> None:
    """Increase the catalog version of these tenants, and send `catalog_changed` after the commit."""
    wanted = set(tenant_ids)
    waiting = _waiting.get()
    if waiting is not None:
        waiting |= wanted
        return
    if not wanted:
        return
    Tenant.objects.filter(pk__in=wanted).update(catalog_version=F("catalog_version") + 1)
    for tenant_id in wanted:
        transaction.on_commit(partial(catalog_changed.send, sender=Tenant, tenant_id=tenant_id))


@contextmanager
def touch_once() -> Iterator[None]:
    """Increase the version of each tenant once, after all changes of the block. Use it within a transaction."""
    waiting: set[Any] = set()
    token = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(token)
    touch(waiting)


def connect() -> None:
    """Connect handlers to the saves and deletes of every versioned model; every process is notified of a change."""
    catalog_changed.connect(_notify, dispatch_uid="notifications of changed catalogs")
    for model in apps.get_models():
        if not issubclass(model, Versioned):
            continue
        name = f"version after {model._meta.label}"
        pre_save.connect(_before_save, sender=model, dispatch_uid=name)
        post_save.connect(_after_save, sender=model, dispatch_uid=name)
        post_delete.connect(_after_delete, sender=model, dispatch_uid=name)


def _notify(tenant_id: Any, **_signal: Any) -> None:
    publish.notify(f"catalog:{tenant_id}")


def _before_save(instance: models.Model, **_options: Any) -> None:
    if instance._state.adding:  # noqa: SLF001 - documented in "Model instance reference"
        return
    stored = type(instance)._default_manager.filter(pk=instance.pk)
    vars(instance)[_FORMER_TENANT] = stored.values_list("tenant_id", flat=True).first()


def _after_save(instance: Any, **_options: Any) -> None:
    former = vars(instance).pop(_FORMER_TENANT, None)
    touch({instance.tenant_id} | ({former} if former is not None else set()))


def _after_delete(instance: Any, **_options: Any) -> None:
    touch({instance.tenant_id})
