"""Permissions of the user behind a request, read once per request."""

from tools_app.access.permissions import TenantPermissions, tenant_permissions_of

__all__ = ["TenantPermissions", "tenant_permissions_of"]
