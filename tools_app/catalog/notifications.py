"""Notifications of catalog changes."""

from typing import Any

from tools_app.catalog.versioned import catalog_changed
from tools_app.core.notifications import publish


def connect() -> None:
    """Notify every process of each catalog change, once it is committed."""
    catalog_changed.connect(_notify, dispatch_uid="notifications of changed catalogs")


def _notify(tenant_id: Any, **_signal: Any) -> None:
    publish.notify(f"catalog:{tenant_id}")
