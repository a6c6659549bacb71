"""Links from records to the rows that they tell of, which may be gone by now, and the name of who called."""

from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html

from tools_app.models.reading import related

ANONYMOUS = "anonymous"


def link(row: Model | None, row_id: Any) -> str:
    """A link to the page of `row`, or what is left of one that is gone."""
    if row is None:
        return _gone(row_id)
    address = reverse(f"admin:{row._meta.label_lower.replace('.', '_')}_change", args=[row.pk])
    return format_html('<a href="{}" class="text-link">{}</a>', address, row)


def key_name(record: Any) -> str:
    """The key that a call or a session came with."""
    found = related(record, "api_key")
    return str(found) if found else _no_key(record)


def key_link(record: Any) -> str:
    """The same with a link to the key's page."""
    found = related(record, "api_key")
    return link(found, record.api_key_id) if found else _no_key(record)


def _no_key(record: Any) -> str:
    # Whoever was let in at a tenant without a key came to one that is open to everybody.
    return ANONYMOUS if record.api_key_id is None and record.tenant_id else _gone(record.api_key_id)


def _gone(row_id: Any) -> str:
    return f"{row_id} (gone)" if row_id else "-"
