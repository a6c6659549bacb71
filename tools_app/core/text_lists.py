"""Lists of texts in a column, such as the names that a key can use."""

from typing import Any

from django.db import models

from tools_app.core.validators import MAX_ENTRIES, MAX_ENTRY_LENGTH, MAX_EXACT, MAX_EXACT_LENGTH, validate_names


class TextListField(models.JSONField):
    """A list of texts, empty unless something is set. Its `validators` take the list. In migrations, a JSONField."""

    max_entries = MAX_ENTRIES
    max_entry_length = MAX_ENTRY_LENGTH

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"default": list, "blank": True, **options})

    def deconstruct(self) -> Any:
        """Return what migrations need."""
        name, _, args, options = super().deconstruct()
        return name, "django.db.models.JSONField", args, options


class NameListField(TextListField):
    """Names, URIs and patterns of tools, prompts and resources, and entries for exactly one of them."""

    max_entries = MAX_EXACT
    max_entry_length = MAX_EXACT_LENGTH
    default_validators = [validate_names]
