"""Links from records to related objects, which may have been deleted, and the names of callers."""

from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html

from tools_app.core.relations import related
from tools_app.models import Connection, ServiceClient

ANONYMOUS = "anonymous"


def link(row: Model | None, row_id: Any) -> str:
    """Return a link to the page of `row`, or its id if it was deleted."""
    if row is None:
        return f"{row_id} (deleted)" if row_id else "-"
    address = reverse(f"admin:{row._meta.label_lower.replace('.', '_')}_change", args=[row.pk])
    return format_html('<a href="{}" class="text-link">{}</a>', address, row)


def key_name(record: Any) -> str:
    """Return the name of the API key of a call or session."""
    found = related(record, "api_key")
    return str(found) if found else _no_key(record)


def key_link(record: Any) -> str:
    """Return the name of the API key, linked to its page."""
    found = related(record, "api_key")
    if found is None:
        return _no_key(record)
    # The key of a connection has no page of its own, unless that is of a service client.
    connection = Connection.objects.filter(key=found).first()
    if connection is not None and connection.person_id is None:
        return link(ServiceClient.objects.get(pk=found.pk), record.api_key_id)
    return link(connection or found, record.api_key_id)


def _no_key(record: Any) -> str:
    # A call without a key was made to a public tenant.
    return ANONYMOUS if record.api_key_id is None and record.tenant_id else link(None, record.api_key_id)
