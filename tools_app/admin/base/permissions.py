"""Permissions of the user behind a request, computed once per request."""

from weakref import WeakKeyDictionary

from django.http import HttpRequest

from tools_app.access.permissions import TenantPermissions

__all__ = ["TenantPermissions", "tenant_permissions_of"]

_by_request: "WeakKeyDictionary[HttpRequest, TenantPermissions]" = WeakKeyDictionary()


def tenant_permissions_of(request: HttpRequest) -> TenantPermissions:
    """Return the permissions of the user who is logged in on `request`."""
    permitted = _by_request.get(request)
    # Logging in changes the user during a request.
    if permitted is None or permitted.person != request.user:
        permitted = _by_request[request] = TenantPermissions(request.user)
    return permitted
