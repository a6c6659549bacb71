"""Middleware that records changes made through the admin or the REST API as the authenticated user's."""

from django.contrib.auth.models import User
from django.http import HttpRequest

from tools_app.audit.changes.changes import Actor, recording_as
from tools_app.identity.principal import client_ip_of
from tools_app.models import Via
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.middleware import in_context

API = "/api/"
# The consent pages, and a person's own connections.
SIGN_IN = ("/oauth/", "/device", "/connections")


def actor_of(request: HttpRequest) -> Actor | None:
    """Return the user authenticated by session or, on the REST API, by token; None if anonymous."""
    # A user authenticated by token is set on the request by its view.
    person = getattr(request, "user", None)
    if not isinstance(person, User) or not person.is_authenticated:
        return None
    path = request.path_info
    via = Via.API if path.startswith(API) else Via.SIGN_IN if path.startswith(SIGN_IN) else Via.ADMIN
    return Actor(person, via, client_ip_of(request), confirm=tenant_permissions_of(request).confirm)


# The user is looked up only when a change is recorded.
acting_person = in_context(lambda request: recording_as(lambda: actor_of(request)))
