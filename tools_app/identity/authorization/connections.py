"""A person's own page of connections: what is connected, since when, last used, and how to end it."""

from typing import Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from tools_app.identity.oauth import attempts, clients, connections
from tools_app.models import Connection, SignInStep
from tools_app.tenants import permissions
from tools_app.tenants.snippets import clients as clients_snippets
from tools_app.upstreams import views as upstream_credentials
from tools_app.web.admin.site import site

MAX_SHOWN: Final = 200
MAX_TENANTS: Final = 20


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """Show the connections of the person, or end one of them."""
    assert isinstance(request.user, User)
    own_connections = Connection.objects.filter(person=request.user).select_related("client", "tenant", "key")
    if request.method == "POST":
        try:
            row = own_connections.filter(pk=UUID(request.POST.get("connection", ""))).first()
        except ValueError:
            row = None
        if row is None:
            raise Http404("Connection not found.")
        if connections.revoke(row):
            attempts.record(request, SignInStep.REVOKED, "By its person.", connection=row)
            messages.success(request, f"{row.client.name} is disconnected from {row.tenant}.")
        return HttpResponseRedirect(reverse("connections"))
    unexpired = Q(key__expires_at=None) | Q(key__expires_at__gt=timezone.now())
    rows = own_connections.filter(unexpired, key__revoked_at=None)[:MAX_SHOWN]
    tenants = permissions.tenants_seen_by(request.user).filter(is_active=True).order_by("name")[:MAX_TENANTS]
    base = request.build_absolute_uri("/")
    context = {
        "title": "Connections",
        "rows": [(row, clients.host_of(row.client)) for row in rows],
        "has_upstreams": upstream_credentials.has_any(request.user),
        "addresses": [(tenant.name, clients_snippets.endpoint(base, tenant.slug)) for tenant in tenants],
        "is_member": permissions.may_enter_admin(request.user),
    }
    return TemplateResponse(
        request, "identity/authorization/connections.html", {**site.each_context(request), **context}
    )
