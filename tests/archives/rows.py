"""A row for every table, so that each later migration meets one that it must keep."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.apps import apps
from django.db import models
from django.utils import timezone

VALUES: dict[str, Any] = {
    "BinaryField": b"x",
    "BooleanField": False,
    "DateTimeField": timezone.now() + timedelta(days=365),
    "FloatField": 1.0,
    "JSONField": {},
    "UUIDField": uuid4(),
}


def fill_empty_tables() -> None:
    """Add one row to each table of the hub that has none, with a value in each column that needs one."""
    all_models = list(apps.get_app_config("tools_app").get_models(include_auto_created=True))
    # More than once, because a row needs those that it belongs to.
    for model in all_models * len(all_models):
        fields = [field for field in model._meta.concrete_fields if not (field.null or field.has_default())]
        owners = [field.related_model._default_manager for field in fields if isinstance(field, models.ForeignKey)]
        if all(owner.exists() for owner in owners) and not model._default_manager.exists():
            values = {field.attname: _value(field) for field in fields if not isinstance(field, models.AutoField)}
            model._default_manager.bulk_create([model(**values)])


def _value(field: "models.Field[Any, Any]") -> Any:
    if isinstance(field, models.ForeignKey):
        return field.related_model._default_manager.values_list("pk", flat=True).first()
    if field.choices:
        return field.choices[0][0]
    return VALUES.get(field.get_internal_type(), "x" if field.empty_strings_allowed else 1)
